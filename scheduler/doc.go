// Package scheduler turns time into inputs: it hands the engine the rows of the due index when
// they come due, and starts the instances that the sagas' schedules ask for.
//
// It promises that a row is handed over in due order and at its time, or a few milliseconds later
// when others came due just before it. A row is not handed over again before the engine has
// answered. A schedule starts each due time at most once, across restarts. The scheduler decides
// nothing about timers: the saga decides what is due in an instance, and the engine decides when
// it may fire.
package scheduler
