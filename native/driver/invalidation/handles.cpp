#include "driver/invalidation/handles.hpp"

#include <cerrno>

namespace softhca {

Result<std::unique_ptr<ChannelHandle>> ChannelHandle::open() {
  const Result<Watcher*> watcher = Watcher::instance();
  if (!watcher.ok()) return watcher.status;
  Result<std::shared_ptr<InvalidationChannel>> channel = watcher.value->open_channel();
  if (!channel.ok()) return channel.status;
  return std::unique_ptr<ChannelHandle>(
      new ChannelHandle(*watcher.value, std::move(channel.value)));
}

Status ChannelHandle::usable() const {
  if (!inherited()) return Status::success();
  return refuse(EIO, "invalidation_channel", 0,
                "belongs to the parent process: make one after fork()");
}

Result<std::size_t> ChannelHandle::take(std::span<InvalidationEvent> out) {
  if (const Status status = usable(); !status.ok()) return status;
  return watcher_.take(*channel_, out);
}

Result<std::uint64_t> ChannelHandle::lost() {
  if (const Status status = usable(); !status.ok()) return status;
  return watcher_.lost(*channel_);
}

void ChannelHandle::shut() {
  if (!inherited()) watcher_.shut_channel(*channel_);
}

Result<std::unique_ptr<WatchHandle>> WatchHandle::open(ChannelHandle& channel,
                                                       std::uint64_t address, std::uint64_t length,
                                                       std::uint64_t cookie) {
  if (const Status status = channel.usable(); !status.ok()) return status;
  Result<std::shared_ptr<WatchedRegion>> region =
      channel.watcher_.add(channel.channel_, address, length, cookie);
  if (!region.ok()) return region.status;
  return std::unique_ptr<WatchHandle>(new WatchHandle(channel.watcher_, std::move(region.value)));
}

std::uint64_t WatchHandle::raised() const { return inherited() ? 0 : watcher_.raised(*region_); }

std::uint64_t WatchHandle::close() {
  if (!inherited() && !is_closed_.exchange(true)) watcher_.remove(*region_);
  return raised();
}

}  // namespace softhca
