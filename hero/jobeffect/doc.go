// Package jobeffect calls effects that are Hero jobs: one script a command, run by
// whichever runner or supervisor the job's context has.
//
// What it promises: a command makes one job, however often it is called, for the
// job's id is derived from the command's key; a call that was cut off finds the
// job again and its result. What it refuses: values of the payload within the
// text of a script, which would be code; they go by env.
package jobeffect
