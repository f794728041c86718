// Package scheduler turns time into inputs: it hands the engine the rows of the
// due index when they come due, and starts what the sagas' schedules ask for.
//
// It promises that a row is handed over at its time, or a few milliseconds later
// where others came due just before it, in due order, and not again before the
// engine has answered; and that a schedule starts each due time at most once,
// across restarts. It decides nothing about timers: what is due in an instance is
// the saga's to say, and when it may fire the engine's.
package scheduler
