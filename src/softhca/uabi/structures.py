"""The structures of commands and answers: <rdma/ib_user_verbs.h>, field by field.

The leading pointer `response` of the older commands stands in each of them, and means nothing where
the command comes through ioctl(2).
"""

from __future__ import annotations

from softhca.uabi.layout import Layout

NOTHING = Layout("")

WRITE_HEADER = Layout("u32 command; u16 in_words; u16 out_words")
EXTENDED_HEADER = Layout("u64 response; u16 provider_in_words; u16 provider_out_words; u32 zero")
IOCTL_HEADER = Layout(
    "u16 length; u16 object_id; u16 method_id; u16 num_attrs; u64 zero1; u32 driver_id; u32 zero2"
)
IOCTL_ATTRIBUTE = Layout("u16 id; u16 length; u16 flags; u16 zero; u64 value")

ASYNC_EVENT = Layout("u64 element; u32 event_type; u32 reserved")
COMPLETION_EVENT = Layout("u64 cq_handle")

# Devices and ports.
GET_CONTEXT = Layout("u64 response")
GET_CONTEXT_RESP = Layout("u32 async_fd; u32 num_comp_vectors")

QUERY_DEVICE = Layout("u64 response")
QUERY_DEVICE_RESP = Layout(
    """
    u64 fw_ver; be64 node_guid; be64 sys_image_guid; u64 max_mr_size; u64 page_size_cap;
    u32 vendor_id; u32 vendor_part_id; u32 hw_ver; u32 max_qp; u32 max_qp_wr; u32 device_cap_flags;
    u32 max_sge; u32 max_sge_rd; u32 max_cq; u32 max_cqe; u32 max_mr; u32 max_pd;
    u32 max_qp_rd_atom; u32 max_ee_rd_atom; u32 max_res_rd_atom; u32 max_qp_init_rd_atom;
    u32 max_ee_init_rd_atom; u32 atomic_cap; u32 max_ee; u32 max_rdd; u32 max_mw;
    u32 max_raw_ipv6_qp; u32 max_raw_ethy_qp; u32 max_mcast_grp; u32 max_mcast_qp_attach;
    u32 max_total_mcast_qp_attach; u32 max_ah; u32 max_fmr; u32 max_map_per_fmr; u32 max_srq;
    u32 max_srq_wr; u32 max_srq_sge; u16 max_pkeys; u8 local_ca_ack_delay; u8 phys_port_cnt;
    u32 reserved
    """
)
EX_QUERY_DEVICE = Layout("u32 comp_mask; u32 zero")
EX_QUERY_DEVICE_RESP = Layout(
    """
    query_device_resp base; u32 comp_mask; u32 response_length;
    u64 odp_general_caps; u32 rc_odp_caps; u32 uc_odp_caps; u32 ud_odp_caps; u32 reserved;
    u64 timestamp_mask; u64 hca_core_clock; u64 device_cap_flags_ex;
    u32 rss_supported_qpts; u32 max_rwq_indirection_tables; u32 max_rwq_indirection_table_size;
    u32 reserved; u32 max_wq_type_rq; u32 raw_packet_caps;
    u32 tm_max_rndv_hdr_size; u32 tm_max_num_tags; u32 tm_flags; u32 tm_max_ops; u32 tm_max_sge;
    u32 reserved; u16 max_cq_moderation_count; u16 max_cq_moderation_period; u32 reserved;
    u64 max_dm_size; u32 xrc_odp_caps; u32 reserved
    """,
    query_device_resp=QUERY_DEVICE_RESP,
)

QUERY_PORT = Layout("u64 response; u8 port_num; u8*7 reserved")
QUERY_PORT_RESP = Layout(
    """
    u32 port_cap_flags; u32 max_msg_sz; u32 bad_pkey_cntr; u32 qkey_viol_cntr; u32 gid_tbl_len;
    u16 pkey_tbl_len; u16 lid; u16 sm_lid; u8 state; u8 max_mtu; u8 active_mtu; u8 lmc;
    u8 max_vl_num; u8 sm_sl; u8 subnet_timeout; u8 init_type_reply; u8 active_width;
    u8 active_speed; u8 phys_state; u8 link_layer; u8 flags; u8 reserved
    """
)
# What the method of ioctl(2) returns: two more capabilities behind the older structure.
QUERY_PORT_RESP_EX = Layout(
    "query_port_resp legacy; u16 port_cap_flags2; u16 reserved; u32 active_speed_ex",
    query_port_resp=QUERY_PORT_RESP,
)
GID_ENTRY = Layout("gid gid; u32 gid_index; u32 port_num; u32 gid_type; u32 netdev_ifindex")

# Protection domains, regions, windows.
ALLOC_PD = Layout("u64 response")
ALLOC_PD_RESP = Layout("u32 pd_handle")
DEALLOC_PD = Layout("u32 pd_handle")
REG_MR = Layout("u64 response; u64 start; u64 length; u64 hca_va; u32 pd_handle; u32 access_flags")
REG_MR_RESP = Layout("u32 mr_handle; u32 lkey; u32 rkey")
REREG_MR = Layout(
    "u64 response; u32 mr_handle; u32 flags; u64 start; u64 length; u64 hca_va; u32 pd_handle; "
    "u32 access_flags"
)
REREG_MR_RESP = Layout("u32 lkey; u32 rkey")
DEREG_MR = Layout("u32 mr_handle")
ALLOC_MW = Layout("u64 response; u32 pd_handle; u8 mw_type; u8*3 reserved")
ALLOC_MW_RESP = Layout("u32 mw_handle; u32 rkey")
DEALLOC_MW = Layout("u32 mw_handle")

# Completion channels and queues.
CREATE_COMP_CHANNEL = Layout("u64 response")
CREATE_COMP_CHANNEL_RESP = Layout("u32 fd")
CREATE_CQ = Layout(
    "u64 response; u64 user_handle; u32 cqe; u32 comp_vector; s32 comp_channel; u32 reserved"
)
EX_CREATE_CQ = Layout(
    "u64 user_handle; u32 cqe; u32 comp_vector; s32 comp_channel; u32 comp_mask; u32 flags; "
    "u32 zero"
)
CREATE_CQ_RESP = Layout("u32 cq_handle; u32 cqe")
EX_CREATE_CQ_RESP = Layout("u32 cq_handle; u32 cqe; u32 comp_mask; u32 response_length")
RESIZE_CQ = Layout("u64 response; u32 cq_handle; u32 cqe")
RESIZE_CQ_RESP = Layout("u32 cqe; u32 reserved")
EX_MODIFY_CQ = Layout("u32 cq_handle; u32 attr_mask; u16 cq_count; u16 cq_period; u32 zero")
REQ_NOTIFY_CQ = Layout("u32 cq_handle; u32 solicited_only")
DESTROY_CQ = Layout("u64 response; u32 cq_handle; u32 reserved")
DESTROY_CQ_RESP = Layout("u32 comp_events_reported; u32 async_events_reported")

# Addresses.
AH_ATTR = Layout(
    """
    gid dgid; u32 flow_label; u8 sgid_index; u8 hop_limit; u8 traffic_class; u8 reserved;
    u16 dlid; u8 sl; u8 src_path_bits; u8 static_rate; u8 is_global; u8 port_num; u8 reserved
    """
)
CREATE_AH = Layout(
    "u64 response; u64 user_handle; u32 pd_handle; u32 reserved; ah_attr attr", ah_attr=AH_ATTR
)
CREATE_AH_RESP = Layout("u32 ah_handle")
DESTROY_AH = Layout("u32 ah_handle")
MCAST = Layout("gid gid; u32 qp_handle; u16 mlid; u16 reserved")

# Queue pairs.
_QP_SIZES = """
    u32 max_send_wr; u32 max_recv_wr; u32 max_send_sge; u32 max_recv_sge; u32 max_inline_data
"""
QP_CAP = Layout(_QP_SIZES)
CREATE_QP = Layout(
    f"""
    u64 response; u64 user_handle; u32 pd_handle; u32 send_cq_handle; u32 recv_cq_handle;
    u32 srq_handle; {_QP_SIZES}; u8 sq_sig_all; u8 qp_type; u8 is_srq; u8 reserved
    """
)
EX_CREATE_QP = Layout(
    f"""
    u64 user_handle; u32 pd_handle; u32 send_cq_handle; u32 recv_cq_handle;
    u32 srq_handle; {_QP_SIZES}; u8 sq_sig_all; u8 qp_type; u8 is_srq; u8 zero;
    u32 comp_mask; u32 create_flags; u32 rwq_ind_tbl_handle; u32 source_qpn
    """
)
CREATE_QP_RESP = Layout(f"u32 qp_handle; u32 qpn; {_QP_SIZES}; u32 reserved")
EX_CREATE_QP_RESP = Layout(
    f"u32 qp_handle; u32 qpn; {_QP_SIZES}; u32 reserved; u32 comp_mask; u32 response_length"
)
OPEN_QP = Layout("u64 response; u64 user_handle; u32 pd_handle; u32 qpn; u8 qp_type; u8*7 reserved")
QP_DEST = Layout(
    """
    gid dgid; u32 flow_label; u16 dlid; u16 reserved; u8 sgid_index; u8 hop_limit;
    u8 traffic_class; u8 sl; u8 src_path_bits; u8 static_rate; u8 is_global; u8 port_num
    """
)
QUERY_QP = Layout("u64 response; u32 qp_handle; u32 attr_mask")
QUERY_QP_RESP = Layout(
    f"""
    qp_dest dest; qp_dest alt_dest; {_QP_SIZES}; u32 qkey; u32 rq_psn; u32 sq_psn; u32 dest_qp_num;
    u32 qp_access_flags; u16 pkey_index; u16 alt_pkey_index; u8 qp_state; u8 cur_qp_state;
    u8 path_mtu; u8 path_mig_state; u8 sq_draining; u8 max_rd_atomic; u8 max_dest_rd_atomic;
    u8 min_rnr_timer; u8 port_num; u8 timeout; u8 retry_cnt; u8 rnr_retry; u8 alt_port_num;
    u8 alt_timeout; u8 sq_sig_all; u8*5 reserved
    """,
    qp_dest=QP_DEST,
)
_MODIFY_QP = """
    qp_dest dest; qp_dest alt_dest; u32 qp_handle; u32 attr_mask; u32 qkey; u32 rq_psn; u32 sq_psn;
    u32 dest_qp_num; u32 qp_access_flags; u16 pkey_index; u16 alt_pkey_index; u8 qp_state;
    u8 cur_qp_state; u8 path_mtu; u8 path_mig_state; u8 en_sqd_async_notify; u8 max_rd_atomic;
    u8 max_dest_rd_atomic; u8 min_rnr_timer; u8 port_num; u8 timeout; u8 retry_cnt; u8 rnr_retry;
    u8 alt_port_num; u8 alt_timeout; u16 reserved
"""
MODIFY_QP = Layout(_MODIFY_QP, qp_dest=QP_DEST)
EX_MODIFY_QP = Layout(_MODIFY_QP + "; u32 rate_limit; u32 reserved", qp_dest=QP_DEST)
EX_MODIFY_QP_RESP = Layout("u32 comp_mask; u32 response_length")
POST_SEND = Layout("u64 response; u32 qp_handle; u32 wr_count; u32 sge_count; u32 wqe_size")
POST_SEND_RESP = Layout("u32 bad_wr")
DESTROY_QP = Layout("u64 response; u32 qp_handle; u32 reserved")
DESTROY_QP_RESP = Layout("u32 events_reported")

# Shared receive queues and XRC domains.
CREATE_SRQ = Layout(
    "u64 response; u64 user_handle; u32 pd_handle; u32 max_wr; u32 max_sge; u32 srq_limit"
)
CREATE_XSRQ = Layout(
    """
    u64 response; u64 user_handle; u32 srq_type; u32 pd_handle; u32 max_wr; u32 max_sge;
    u32 srq_limit; u32 max_num_tags; u32 xrcd_handle; u32 cq_handle
    """
)
CREATE_SRQ_RESP = Layout("u32 srq_handle; u32 max_wr; u32 max_sge; u32 srqn")
MODIFY_SRQ = Layout("u32 srq_handle; u32 attr_mask; u32 max_wr; u32 srq_limit")
QUERY_SRQ = Layout("u64 response; u32 srq_handle; u32 reserved")
QUERY_SRQ_RESP = Layout("u32 max_wr; u32 max_sge; u32 srq_limit; u32 reserved")
DESTROY_SRQ = Layout("u64 response; u32 srq_handle; u32 reserved")
DESTROY_SRQ_RESP = Layout("u32 events_reported")
OPEN_XRCD = Layout("u64 response; u32 fd; u32 oflags")
OPEN_XRCD_RESP = Layout("u32 xrcd_handle")
CLOSE_XRCD = Layout("u32 xrcd_handle")

# What the provider of rxe wants besides: <rdma/rdma_user_rxe.h>.
_MMINFO = Layout("u64 offset; u32 size; u32 reserved")
RXE_CREATE_CQ_RESP = Layout("mminfo mi", mminfo=_MMINFO)
RXE_RESIZE_CQ_RESP = Layout("mminfo mi", mminfo=_MMINFO)
RXE_CREATE_QP_RESP = Layout("mminfo rq_mi; mminfo sq_mi", mminfo=_MMINFO)
RXE_CREATE_SRQ_RESP = Layout("mminfo mi; u32 srq_num; u32 reserved", mminfo=_MMINFO)
RXE_CREATE_AH_RESP = Layout("u32 ah_num; u32 reserved")
RXE_MODIFY_SRQ = Layout("u64 mmap_info_addr")
