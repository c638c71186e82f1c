// The ledgers of a plan's variables: which of them a step opens, and what becomes of them.
//
// A step holds the mutexes of all ledgers that it opens. Every plan takes them in the same order,
// so that no two steps wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "deferred.hpp"
#include "pool.hpp"
#include "table.hpp"

namespace fastopt {

class Ledgers {
 public:
  // Makes room for n ledgers. May throw std::bad_alloc; nothing else does.
  void reserve(std::size_t n) { entries_.reserve(n); }

  // `sparse` tells, at each step, whether the variable's gradient is.
  void add(std::int64_t variable, Table* table, Deferred* deferred, const int* sparse) noexcept {
    auto at = entries_.begin();
    while (at != entries_.end() && at->deferred < deferred) ++at;
    entries_.insert(at, Entry{variable, table, deferred, sparse, nullptr, false});
  }

  std::size_t size() const noexcept { return entries_.size(); }
  std::int64_t variable(std::size_t i) const noexcept { return entries_[i].variable; }
  // Whether the step will need to know what rows without a gradient miss.
  bool updates(std::size_t i) const noexcept { return entries_[i].open && *entries_[i].sparse; }
  // For this step and those after it.
  void set_decay(std::size_t i, const DecayPtr* decay) noexcept { entries_[i].decay = decay; }

  // Opens those whose rows wait, or will after this step: where the rule changes rows without a
  // gradient (`waits`), or they decay by their variable's rate. Without decay, rates is null.
  bool choose(bool waits, const double* rates) noexcept {
    bool any = false;
    for (Entry& e : entries_) {
      e.open = e.deferred->pending() || (*e.sparse && (waits || rate(e, rates) != 0));
      e.table->deferred = e.open ? e.deferred : nullptr;
      any = any || e.open;
    }
    return any;
  }

  // Takes the mutexes; begins a step of what is updated sparsely, and makes up for all of what is
  // not. False: no memory.
  bool begin(const double* rates, parallel_fn parallel, int threads) noexcept {
    for (Entry& e : entries_) {
      if (e.open) e.deferred->lock();
    }
    for (Entry& e : entries_) {
      if (!e.open) continue;
      if (!*e.sparse) {
        e.deferred->settle_all(parallel, threads);
      } else if (!e.deferred->begin(*e.decay, rate(e, rates), parallel, threads)) {
        return false;
      }
    }
    return true;
  }

  // Ends the step, if it was done, and gives up the mutexes. Variable k's scalars begin at
  // scalars[k * stride].
  void end(bool done, const double* scalars, std::int64_t stride, const double* rates,
           parallel_fn parallel, int threads) noexcept {
    for (Entry& e : entries_) {
      if (!e.open) continue;
      if (*e.sparse && done) {
        const double lr = e.decay->get()->lr(scalars + e.variable * stride);
        e.deferred->end(lr, rate(e, rates), parallel, threads);
      } else if (*e.sparse) {
        e.deferred->abort();
      }
      e.deferred->unlock();
    }
  }

 private:
  struct Entry {
    std::int64_t variable;
    Table* table;
    Deferred* deferred;
    const int* sparse;
    const DecayPtr* decay;
    bool open;
  };

  // What decays of rows without a gradient, where only listed rows are updated.
  static double rate(const Entry& e, const double* rates) noexcept {
    return rates == nullptr || e.table->decay_listed ? 0.0 : rates[e.variable];
  }

  std::vector<Entry> entries_;  // by the address of the ledger
};

}  // namespace fastopt
