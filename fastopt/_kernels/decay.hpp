// What steps do to elements without a gradient, in closed form: the arithmetic of deferred.hpp.
//
// Slots shrink by constant factors; the weight moves by a series (_expansion.py) and shrinks too.
// For each step of the clock there is an entry: the moments of what comes after that step,
// and the product of the factors on the weight. A step adds to the entries of the last `window`
// steps; older ones are complete. What has missed more than a window is made up for window by
// window.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "table.h"

namespace fastopt {

// What a rule does to elements without a gradient, with the numbers that stay from step to step.
struct Decay {
  struct Shrinking {
    int slot;
    int scalar;         // its place among the scalars of a step
    double value;       // what that was
    double factor;      // of a step
    std::vector<double> powers;  // factor**k for k = 0..1023, 1024 * k, 1024**2 * k
  };
  static constexpr int kDigits = 1024;

  std::vector<Shrinking> shrinking;
  const Shrinking* of_moving = nullptr;  // in there
  const Shrinking* of_over = nullptr;    // or null, if that slot stays
  int moving = -1, over = -1, root = 0;  // slots; -1: the weight does not move
  int lr_scalar = -1, epsilon_scalar = -1;
  double epsilon = 0, centre = 1;
  std::int32_t window = 1, reach = 0;
  int n_moments = 1, stride = 8;
  std::vector<double> coefficients;  // (window, stride); 0 behind the moments

  void add_shrinking(int slot, int scalar, double value, double factor) {
    Shrinking s{slot, scalar, value, factor, std::vector<double>(3 * kDigits)};
    for (int k = 0; k < kDigits; ++k) {
      for (int digit = 0; digit < 3; ++digit) {
        s.powers[digit * kDigits + k] = std::pow(factor, std::ldexp(k, 10 * digit));
      }
    }
    shrinking.push_back(std::move(s));
  }
  void set_moments(std::int32_t window_, std::int32_t reach_, double centre_, int n_moments_,
                   const double* values) {
    window = window_;
    reach = reach_;
    centre = centre_;
    n_moments = n_moments_;
    stride = n_moments < 8 ? 8 : 16;
    coefficients.assign(static_cast<std::size_t>(window) * stride, 0.0);
    for (std::int32_t j = 0; j < window; ++j) {
      std::copy_n(values + static_cast<std::size_t>(j) * n_moments, n_moments,
                  &coefficients[static_cast<std::size_t>(j) * stride]);
    }
    for (const Shrinking& s : shrinking) {
      if (s.slot == moving) of_moving = &s;
      if (s.slot == over) of_over = &s;
    }
  }
  static double power(const Shrinking& s, std::int32_t k) noexcept {
    double result = s.powers[k % kDigits];
    if (k >= kDigits) {
      result *= s.powers[kDigits + k / kDigits % kDigits] *
                s.powers[2 * kDigits + k / kDigits / kDigits];
    }
    return result;
  }
  bool fits(const double* scalars) const noexcept {
    for (const Shrinking& s : shrinking) {
      if (scalars[s.scalar] != s.value) return false;
    }
    return epsilon_scalar < 0 || scalars[epsilon_scalar] == epsilon;
  }
  bool same(const Decay& other) const noexcept {
    if (epsilon != other.epsilon || shrinking.size() != other.shrinking.size()) return false;
    for (std::size_t k = 0; k < shrinking.size(); ++k) {
      if (shrinking[k].value != other.shrinking[k].value) return false;
    }
    return true;  // all else is the rule's, and a table has one rule
  }
  double lr(const double* scalars) const noexcept {
    return lr_scalar < 0 ? 0.0 : scalars[lr_scalar];
  }
};

// Several tables, and plans, may hold the same.
using DecayPtr = std::shared_ptr<const Decay>;
inline DecayPtr shared(Decay* decay) { return DecayPtr(decay); }

// What came after each step of the clock, which begins at 0.
class MissedSteps {
 public:
  MissedSteps() = default;
  MissedSteps(const MissedSteps&) = delete;
  MissedSteps& operator=(const MissedSteps&) = delete;
  ~MissedSteps() {
    std::free(entries_);
    std::free(log_keep_);
  }

  std::int32_t clock() const noexcept { return clock_.load(std::memory_order_relaxed); }
  // That of all steps of the clock; there is one from the first step on.
  const Decay& decay() const noexcept { return *decay_; }

  // Makes room for the entry of a step. False: no memory. A clock at 0 takes over the constants.
  bool begin(const DecayPtr& decay) noexcept {
    if (clock() == 0) {
      if (decay_ == nullptr || decay_->stride != decay->stride) capacity_ = 0;
      decay_ = decay;
      decays_ = false;
    }
    if (!reserve(clock() + 2)) return false;
    double* fresh = entry(clock());
    std::fill_n(fresh, decay_->stride, 0.0);
    fresh[decay_->stride - 1] = 1.0;
    return true;
  }
  // The step was made: with a learning rate, and a rate of decay of the weights.
  void end(double lr, double rate) noexcept {
    const Decay& d = *decay_;
    const double keep = 1 - rate;
    const std::int32_t t = clock() + 1;
    const int stride = d.stride;
    const std::int32_t covered = std::min(d.window, t);
    for (std::int32_t j = 1; j <= covered; ++j) {
      double* e = entry(t - j);
      const double* c = &d.coefficients[static_cast<std::size_t>(j - 1) * stride];
      for (int i = 0; i < stride; ++i) e[i] = keep * e[i] + lr * c[i];
    }
    // Sums of logarithms, with what their roundings lose.
    if (t == 1) lost_ = log_keep_[0] = 0;
    const double term = (rate < 1 ? std::log1p(-rate) : 0.0) - lost_;
    log_keep_[t] = log_keep_[t - 1] + term;
    lost_ = (log_keep_[t] - log_keep_[t - 1]) - term;
    decays_ = decays_ || rate != 0;
    clock_.store(t, std::memory_order_relaxed);
  }
  // Nothing has been missed by anything: the clock begins anew.
  void forget() noexcept { clock_.store(0, std::memory_order_relaxed); }

  // Brings n elements that were up to date at step t0 to the clock. Without `shrinks` slots are
  // left as they are: then there is no more than a window to make up for.
  void bring(std::int32_t t0, void* w, void* const* slots, std::int64_t n, bool shrinks, int type,
             const run_table* functions) const noexcept {
    const Decay& d = *decay_;
    const std::int32_t all = clock() - t0;
    std::int32_t missed = all;
    if (d.moving >= 0) {
      double h[3 + 16];
      while (missed > 0 && all - missed < d.reach) {
        const std::int32_t k = std::min(missed, d.window);
        read_entry(t0, h);
        void *moving = slots[d.moving], *over = slots[d.over];
        if (shrinks && d.of_over != nullptr) {
          functions->make_up[d.root][type](w, moving, over, h, d.n_moments,
                                           Decay::power(*d.of_moving, k),
                                           Decay::power(*d.of_over, k), n);
        } else {
          functions->move[d.root][type](w, moving, over, h, d.n_moments, n);
          if (shrinks) functions->shrink[type](moving, Decay::power(*d.of_moving, k), n);
        }
        t0 += k;
        missed -= k;
      }
    }
    if (missed > 0 && decays_) {
      const double keep = missed <= d.window ? entry(t0)[d.stride - 1]
                                             : std::exp(log_keep_[clock()] - log_keep_[t0]);
      functions->shrink[type](w, keep, n);
    }
    if (!shrinks) return;
    for (const Decay::Shrinking& s : d.shrinking) {
      const std::int32_t k = &s == d.of_moving || &s == d.of_over ? missed : all;
      if (k != 0 && slots[s.slot] != nullptr) {
        functions->shrink[type](slots[s.slot], Decay::power(s, k), n);
      }
    }
  }

  // What was missed since step t0, as row_walk has it. False: nothing, or nothing that a walk's own
  // loop can make up for.
  bool read_late(std::int32_t t0, double* numbers) const noexcept {
    const Decay& d = *decay_;
    const std::int32_t missed = clock() - t0;
    if (missed <= 0 || missed > d.window || d.reach < 1 || d.n_moments > 4 ||
        d.of_over == nullptr) {
      return false;
    }
    read_entry(t0, numbers);
    numbers[7] = Decay::power(*d.of_moving, missed);
    numbers[8] = Decay::power(*d.of_over, missed);
    return true;
  }

 private:
  // keep, epsilon, centre and moments of what came after step t
  void read_entry(std::int32_t t, double* h) const noexcept {
    const Decay& d = *decay_;
    const double* e = entry(t);
    h[0] = e[d.stride - 1];
    h[1] = d.epsilon;
    h[2] = d.centre;
    std::copy_n(e, d.n_moments <= 4 ? 4 : d.n_moments, h + 3);  // zeros behind
  }
  double* entry(std::int32_t t) const noexcept {
    return entries_ + static_cast<std::size_t>(t) * decay_->stride;
  }
  bool reserve(std::int32_t n) noexcept {
    if (n <= capacity_) return true;
    const std::size_t capacity = std::max<std::size_t>(256, static_cast<std::size_t>(n) * 2);
    void* entries = std::realloc(entries_, capacity * decay_->stride * sizeof(double));
    if (entries == nullptr) return false;
    entries_ = static_cast<double*>(entries);
    void* logs = std::realloc(log_keep_, capacity * sizeof(double));
    if (logs == nullptr) return false;
    log_keep_ = static_cast<double*>(logs);
    capacity_ = static_cast<std::int64_t>(capacity);
    return true;
  }

  std::atomic<std::int32_t> clock_{0};
  DecayPtr decay_;
  double* entries_ = nullptr;
  double* log_keep_ = nullptr;  // logarithms of the factors on the weight, summed up
  double lost_ = 0;
  bool decays_ = false;         // whether one of these factors is not 1
  std::int64_t capacity_ = 0;   // of both
};

}  // namespace fastopt
