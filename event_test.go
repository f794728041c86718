package edda

import "testing"

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"acme", "acme", true}, {"acme", "acme2", false}, {"acme", "", false}, {"", "", true},
		{"*", "", true}, {"*", "acme", true}, {"eu-*", "eu-west", true}, {"eu-*", "eu", false}, {"eu-*", "us-eu-west", false},
		{"*-eu", "acme-eu", true}, {"a*b*c", "a-b-c", true}, {"a*b*c", "acb", false}, {"a*a", "a", false}, {"a*a", "aa", true},
	} {
		if got := Matches(tt.pattern, tt.text); got != tt.want {
			t.Errorf("Matches(%q, %q) = %t", tt.pattern, tt.text, got)
		}
	}
}

func TestFinishedStatuses(t *testing.T) {
	for s, want := range map[Status]bool{
		StatusRunning: false, StatusUndoing: false, StatusStuck: false, StatusDone: true, StatusFailed: true, StatusUndone: true,
	} {
		if s.Finished() != want {
			t.Errorf("%s.Finished() = %v", s, !want)
		}
	}
}
