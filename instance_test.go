package edda

import "testing"

func TestFinishedStatuses(t *testing.T) {
	for s, want := range map[Status]bool{
		StatusRunning: false, StatusUndoing: false, StatusStuck: false, StatusDone: true, StatusFailed: true, StatusUndone: true,
	} {
		if s.Finished() != want {
			t.Errorf("%s.Finished() = %v", s, !want)
		}
	}
}
