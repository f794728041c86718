// Package retention removes what has outlived its setting: finished instances,
// history, claims, dead letters and audits.
//
// It works in the background, in portions that the store bounds, and rests
// between them for longer than each took, so that commits hardly wait for it.
// What it refuses: to believe a clock that leaps. Time, as it counts here,
// follows the clock by at most [MaxLeap] in one run of the loop, and the loop runs
// once an hour by the monotonic clock: an hour with a wrong date costs at most a
// day of retention, and what is young stays.
package retention
