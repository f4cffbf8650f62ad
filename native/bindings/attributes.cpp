#include "transport/attributes.hpp"

#include "adapter/adapter.hpp"
#include "bindings/module.hpp"

namespace softhca {
namespace {

void bind_qp_attributes(nb::module_& module) {
  nb::class_<QpCap>(module, "QpCap")
      .def(nb::init<>())
      .def_rw("max_send_wr", &QpCap::max_send_wr)
      .def_rw("max_recv_wr", &QpCap::max_recv_wr)
      .def_rw("max_send_sge", &QpCap::max_send_sge)
      .def_rw("max_recv_sge", &QpCap::max_recv_sge)
      .def_rw("max_inline_data", &QpCap::max_inline_data);
  nb::class_<QpInit>(module, "QpInit")
      .def(nb::init<>())
      .def_rw("type", &QpInit::type)
      .def_rw("pd", &QpInit::pd)
      .def_rw("send_cq", &QpInit::send_cq)
      .def_rw("recv_cq", &QpInit::recv_cq)
      .def_rw("srq", &QpInit::srq)
      .def_rw("xrcd", &QpInit::xrcd)
      .def_rw("sq_sig_all", &QpInit::sq_sig_all)
      .def_rw("cap", &QpInit::cap);
  nb::class_<QpAttr>(module, "QpAttr")
      .def(nb::init<>())
      .def_rw("qp_state", &QpAttr::qp_state)
      .def_rw("cur_qp_state", &QpAttr::cur_qp_state)
      .def_rw("path_mtu", &QpAttr::path_mtu)
      .def_rw("path_mig_state", &QpAttr::path_mig_state)
      .def_rw("qkey", &QpAttr::qkey)
      .def_rw("rq_psn", &QpAttr::rq_psn)
      .def_rw("sq_psn", &QpAttr::sq_psn)
      .def_rw("dest_qp_num", &QpAttr::dest_qp_num)
      .def_rw("qp_access_flags", &QpAttr::qp_access_flags)
      .def_rw("cap", &QpAttr::cap)
      .def_rw("ah_attr", &QpAttr::ah_attr)
      .def_rw("alt_ah_attr", &QpAttr::alt_ah_attr)
      .def_rw("pkey_index", &QpAttr::pkey_index)
      .def_rw("alt_pkey_index", &QpAttr::alt_pkey_index)
      .def_rw("en_sqd_async_notify", &QpAttr::en_sqd_async_notify)
      .def_rw("sq_draining", &QpAttr::sq_draining)
      .def_rw("max_rd_atomic", &QpAttr::max_rd_atomic)
      .def_rw("max_dest_rd_atomic", &QpAttr::max_dest_rd_atomic)
      .def_rw("min_rnr_timer", &QpAttr::min_rnr_timer)
      .def_rw("port_num", &QpAttr::port_num)
      .def_rw("timeout", &QpAttr::timeout)
      .def_rw("retry_cnt", &QpAttr::retry_cnt)
      .def_rw("rnr_retry", &QpAttr::rnr_retry)
      .def_rw("alt_port_num", &QpAttr::alt_port_num)
      .def_rw("alt_timeout", &QpAttr::alt_timeout);
}

}  // namespace

void bind_attributes(nb::module_& module) {
  nb::class_<AhAttr>(module, "AhAttr")
      .def(nb::init<>())
      .def_rw("is_global", &AhAttr::is_global)
      .def_rw("dgid", &AhAttr::dgid)
      .def_rw("sgid_index", &AhAttr::sgid_index)
      .def_rw("flow_label", &AhAttr::flow_label)
      .def_rw("hop_limit", &AhAttr::hop_limit)
      .def_rw("traffic_class", &AhAttr::traffic_class)
      .def_rw("sl", &AhAttr::sl)
      .def_rw("port", &AhAttr::port);
  bind_qp_attributes(module);
  nb::class_<SrqAttr>(module, "SrqAttr")
      .def(nb::init<>())
      .def_rw("max_wr", &SrqAttr::max_wr)
      .def_rw("max_sge", &SrqAttr::max_sge)
      .def_rw("srq_limit", &SrqAttr::srq_limit);
  nb::class_<PortAttr>(module, "PortAttr")
      .def_ro("state", &PortAttr::state)
      .def_ro("max_mtu", &PortAttr::max_mtu)
      .def_ro("active_mtu", &PortAttr::active_mtu)
      .def_ro("gid_tbl_len", &PortAttr::gid_tbl_len)
      .def_ro("pkey_tbl_len", &PortAttr::pkey_tbl_len)
      .def_ro("max_msg_sz", &PortAttr::max_msg_sz)
      .def_ro("bad_pkey_cntr", &PortAttr::bad_pkey_cntr)
      .def_ro("qkey_viol_cntr", &PortAttr::qkey_viol_cntr);
  nb::class_<MrInfo>(module, "MrInfo")
      .def_ro("handle", &MrInfo::handle)
      .def_ro("lkey", &MrInfo::lkey)
      .def_ro("rkey", &MrInfo::rkey);
}

}  // namespace softhca
