// Streams and events: work that is done later, in order.

#pragma once
#include "device_state.h"
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <string>

// A queue of work with a thread that does it.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  static std::shared_ptr<Stream> start(unsigned flags);

  // How many pieces of work were given before, this one included.
  uint64_t give(std::string name, std::function<void()> work);
  uint64_t given();
  // Returns once so many pieces are done.
  void wait(uint64_t count);
  bool idle();
  // Ends the thread once all is done.
  void close();
  // Whether the stream waits for work of the null stream, and the null stream for work of this stream.
  bool blocking() const { return !(flags_ & CU_STREAM_NON_BLOCKING); }

 private:
  struct Work {
    std::string name;
    std::function<void()> run;
  };
  void work();

  unsigned flags_ = 0;
  uint64_t seed_ = 0;
  std::mutex mutex_;
  std::condition_variable more_, done_;
  std::deque<Work> queue_;
  uint64_t given_ = 0, finished_ = 0;
  bool closed_ = false;
};

// Gives a stream work, behind the null stream's or all others' where CUDA says so.
uint64_t give(const std::shared_ptr<Stream>&, std::string name, std::function<void()> work);
// The stream of a handle: null is the null stream; nothing if there is no such stream.
std::shared_ptr<Stream> stream_of(CUstream);
CUstream add_stream(unsigned flags);
bool remove_stream(CUstream);
void wait_for_all_streams();
void close_all_streams();

class Event {
 public:
  using Clock = std::chrono::steady_clock;

  // A moment in a stream.
  class Moment {
   public:
    void come();
    void wait();
    bool has_come();
    Clock::time_point when();

   private:
    std::mutex mutex_;
    std::condition_variable came_;
    bool come_ = false;
    Clock::time_point when_;
  };

  explicit Event(unsigned flags) : flags(flags) {}
  // Position of the latest recording; null before the first.
  std::shared_ptr<Moment> moment();
  void record(const std::shared_ptr<Stream>&);

  const unsigned flags;

 private:
  std::mutex mutex_;
  std::shared_ptr<Moment> moment_;
};

Handles<Event>& events();
