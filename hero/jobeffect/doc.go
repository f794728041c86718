// Package jobeffect calls effects that are Hero jobs: one script a command, run by a runner
// or supervisor of the job's context.
//
// It promises that a command makes one job, however often it is called, because the job's id
// is derived from the command's key: a repeated call finds the job and its result. It
// refuses values of the payload in the text of a script, where they would be code; a
// script gets them by env.
package jobeffect
