// Package retention removes what has passed its retention time: finished instances, history,
// claims, dead letters and audits.
//
// It works in the background, in portions that the store bounds. After each portion it pauses
// longer than its commit took, so that other commits hardly wait for it.
//
// It refuses to trust a clock that jumps. The time by which it counts age follows the clock by at
// most [MaxLeap] in one run of the loop. The loop runs once an hour by the monotonic clock. So an
// hour with a wrong date costs at most a day of retention, and young rows stay.
package retention
