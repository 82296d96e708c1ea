#include "stream.h"
#include <algorithm>
#include <atomic>
#include <thread>

std::shared_ptr<Stream> Stream::start(unsigned flags) {
  static std::atomic<uint64_t> started{0};
  auto stream = std::make_shared<Stream>();
  stream->flags_ = flags;
  stream->seed_ = ++started * 0x9E3779B97F4A7C15u;
  // The thread is detached and owns the stream, because a stream may be destroyed while it still has work.
  std::thread([stream] { stream->work(); }).detach();
  return stream;
}

uint64_t Stream::give(std::string name, std::function<void()> work) {
  std::lock_guard lock(mutex_);
  queue_.push_back({std::move(name), std::move(work)});
  more_.notify_one();
  return ++given_;
}

uint64_t Stream::given() {
  std::lock_guard lock(mutex_);
  return given_;
}

void Stream::wait(uint64_t count) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return finished_ >= count; });
}

bool Stream::idle() {
  std::lock_guard lock(mutex_);
  return finished_ == given_;
}

void Stream::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  more_.notify_one();
}

void Stream::work() {
  report_crashes();
  unsigned longest = settings().delay_us;
  for (;;) {
    Work next;
    {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [&] { return !queue_.empty() || closed_; });
      if (queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    if (longest) {
      seed_ = seed_ * 6364136223846793005u + 1442695040888963407u;
      std::this_thread::sleep_for(std::chrono::microseconds((seed_ >> 33) % (longest + 1)));
    }
    now_doing(next.name.c_str());
    next.run();
    now_doing(nullptr);
    // The work frees what it holds before it is reported as done.
    next.run = nullptr;
    std::lock_guard lock(mutex_);
    ++finished_;
    done_.notify_all();
  }
}

namespace {

struct Streams {
  std::mutex mutex;  // makes giving work one step, so that streams cannot wait for one another in a circle
  std::shared_ptr<Stream> null = Stream::start(0);
  Handles<Stream> live;
  std::vector<std::shared_ptr<Stream>> closing;  // destroyed, but perhaps with work left
};

// Never destroyed, as the threads are not.
Streams& streams() {
  static Streams& streams = *new Streams;
  return streams;
}

// All streams that may have work, except for the null stream.
std::vector<std::shared_ptr<Stream>> others() {
  auto& closing = streams().closing;
  closing.erase(std::remove_if(closing.begin(), closing.end(), [](auto& s) { return s->idle(); }), closing.end());
  auto all = streams().live.all();
  all.insert(all.end(), closing.begin(), closing.end());
  return all;
}

}  // namespace

uint64_t give(const std::shared_ptr<Stream>& stream, std::string name, std::function<void()> work) {
  std::lock_guard lock(streams().mutex);
  std::vector<std::pair<std::shared_ptr<Stream>, uint64_t>> first;
  auto after = [&](const std::shared_ptr<Stream>& other) {
    if (!other->idle()) first.emplace_back(other, other->given());
  };
  if (stream == streams().null) {
    for (auto& other : others()) {
      if (other->blocking()) after(other);
    }
  } else if (stream->blocking()) {
    after(streams().null);
  }
  if (first.empty()) return stream->give(std::move(name), std::move(work));
  return stream->give(std::move(name), [first = std::move(first), work = std::move(work)] {
    for (auto& [other, count] : first) other->wait(count);
    work();
  });
}

std::shared_ptr<Stream> stream_of(CUstream handle) {
  // 1 and 2 are the handles CU_STREAM_LEGACY and CU_STREAM_PER_THREAD; the latter is not there.
  if (!handle || handle == reinterpret_cast<CUstream>(1)) return streams().null;
  return streams().live.find(handle);
}

CUstream add_stream(unsigned flags) { return streams().live.add(Stream::start(flags)); }

bool remove_stream(CUstream handle) {
  std::lock_guard lock(streams().mutex);
  auto stream = streams().live.remove(handle);
  if (!stream) return false;
  stream->close();
  streams().closing.push_back(std::move(stream));
  return true;
}

void wait_for_all_streams() {
  std::vector<std::shared_ptr<Stream>> all;
  {
    std::lock_guard lock(streams().mutex);
    all = others();
    all.push_back(streams().null);
  }
  for (auto& stream : all) stream->wait(stream->given());
}

void close_all_streams() {
  for (auto& stream : streams().live.all()) remove_stream(stream.get());
}

void Event::Moment::come() {
  std::lock_guard lock(mutex_);
  when_ = Clock::now();
  come_ = true;
  came_.notify_all();
}

void Event::Moment::wait() {
  std::unique_lock lock(mutex_);
  came_.wait(lock, [&] { return come_; });
}

bool Event::Moment::has_come() {
  std::lock_guard lock(mutex_);
  return come_;
}

Event::Clock::time_point Event::Moment::when() {
  std::lock_guard lock(mutex_);
  return when_;
}

std::shared_ptr<Event::Moment> Event::moment() {
  std::lock_guard lock(mutex_);
  return moment_;
}

void Event::record(const std::shared_ptr<Stream>& stream) {
  std::lock_guard lock(mutex_);
  auto moment = moment_ = std::make_shared<Moment>();
  give(stream, "an event", [moment] { moment->come(); });
}

Handles<Event>& events() {
  static Handles<Event>& events = *new Handles<Event>;
  return events;
}
