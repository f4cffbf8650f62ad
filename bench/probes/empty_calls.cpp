// Probe c: what calling an extension costs at least. `post` takes an integer and `poll` nothing,
// both by position, and neither does anything.
#include <nanobind/nanobind.h>

namespace {

struct Empty {
  int posted = 0;
  int post(int work) { return posted = work; }
  int poll() const { return posted; }
};

}  // namespace

NB_MODULE(empty_calls, module) {
  nanobind::class_<Empty>(module, "Empty")
      .def(nanobind::init<>())
      .def("post", &Empty::post)
      .def("poll", &Empty::poll);
}
