// A variable as the drivers see it, and its weights while a rule works on them.
#pragma once

#include <cstdint>

#include "table.h"

namespace fastopt {

class Deferred;

struct Table {
  char* w;  // null: weights of 16 bits without a master
  char* slots[FASTOPT_MAX_SLOTS];
  int n_slots;
  std::int64_t n_rows;
  std::int64_t width;  // elements of a row
  int type;            // 0: float32, 1: float64
  const rule_entry* rule;
  bool every_row;      // rows without look-ups are updated too, with a gradient of 0
  char* half;          // the weights in 16 bits, of which w is the float32 master; or null
  int half_type;       // 0: float16, 1: bfloat16
  Deferred* deferred;  // or null: what rows without look-ups miss is made up for later
  bool decay_listed;   // only rows with look-ups decay, also where every row is updated
  std::uint32_t key;   // of the random numbers by which weights without a master are rounded

  std::int64_t item_size() const noexcept { return type == 0 ? sizeof(float) : sizeof(double); }
  bool has_copies() const noexcept { return w == nullptr; }
  // What belongs to a row with every element, or to a row as a whole.
  void locate(std::int64_t row, std::int64_t element, void** at) const noexcept {
    for (int s = 0; s < n_slots; ++s) {
      at[s] = slots[s] + (rule->row_slots >> s & 1 ? row : element) * item_size();
    }
  }

  // Returns n weights from `element` on for a rule to work on: they themselves, or the master,
  // which takes over what it doesn't round to, or a copy in float32. The part `rate` of them is
  // gone.
  void* open(const run_table* functions, std::int64_t element, std::int64_t n, double rate,
             float* copy) const noexcept {
    void* weights = copy;
    if (w != nullptr) weights = w + element * item_size();
    if (half != nullptr) {
      const auto widen = w == nullptr ? functions->widen : functions->refresh;
      widen[half_type](weights, half + element * 2, n);
    }
    if (rate != 0) functions->decay[type](weights, rate, n);
    return weights;
  }
  // A rule that knows an element alone, on n of what `open` returned without a rate: it goes here.
  void run(void* weights, const void* g, void** at, const void* h, double rate,
           std::int64_t n) const noexcept {
    if (rate == 0) {
      rule->run[type](weights, g, at, h, n);
    } else {
      rule->decayed[type](weights, g, at, h, rate, n);
    }
  }
  // What `open` returned has been updated. `times`: how often these elements were in this step.
  void close(const run_table* functions, std::int64_t element, std::int64_t n, const void* weights,
             std::uint32_t times = 0) const noexcept {
    if (half == nullptr) return;
    if (w != nullptr) {
      functions->narrow[half_type](half + element * 2, weights, n);
    } else {
      functions->narrow_random[half_type](half + element * 2, weights, key + times * 0x9e3779b9u,
                                          element, n);
    }
  }
};

}  // namespace fastopt
