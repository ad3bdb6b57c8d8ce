// Handles of the library that stands in for cuDNN, and who uses them.
#pragma once

namespace fake_cudnn {

void* NewHandle();
bool DeleteHandle(void* handle);  // false: there is no such
bool IsHandle(void* handle);
int NumHandles();

// A call that uses a handle, as long as this lives. cuDNN's handles are for one
// thread at a time, and what is executed goes to the stream that was set last:
// setting it and executing belong together.
class Use {
 public:
  enum class For { kPlan, kStream, kExecution };

  Use(void* handle, For what);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  // False: another thread uses it, or has set the stream since.
  bool is_alone() const { return is_alone_; }

 private:
  void* const handle_;
  bool is_alone_ = false;
};

}  // namespace fake_cudnn
