#include "driver/local_news.hpp"
#include "tests/check.hpp"

namespace softhca {
namespace {

TEST("local news: as old as the look that first fetched something was known of") {
  LocalNews news;
  news.looked(true, false);
  CHECK_EQ(news.age_ns(1'000), 0u);
  CHECK_EQ(news.age_ns(1'500), 500u);
  news.looked(false, false);
  CHECK_EQ(news.age_ns(2'000), 1'000u);
  news.looked(true, false);
  CHECK_EQ(news.age_ns(3'000), 0u);
}

TEST("local news: a payload that was fetched after a long time is as good as a request") {
  LocalNews news;
  news.looked(true, true);
  CHECK(news.lends());
  CHECK_EQ(news.age_ns(1'000), 0u);
  news.looked(false, true);
  CHECK_EQ(news.age_ns(41'000), 40'000u);
  news.looked(false, false);
  CHECK(!news.lends());
  CHECK_EQ(news.age_ns(42'000), 0u);
  news.looked(false, false);
  CHECK_EQ(news.age_ns(43'000), 1'000u);
}

}  // namespace
}  // namespace softhca
