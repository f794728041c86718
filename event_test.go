package edda

import (
	"testing"
	"time"
)

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

func TestAMemberOfABatchIsNamedByItsPlace(t *testing.T) {
	whole, member := Event{Stream: "S", Seq: 7}, Event{Stream: "S", Seq: 7, Member: 3}
	for got, want := range map[string]string{
		whole.Number(): "7", member.Number(): "7:3",
		whole.Place(): "message 7 of stream S", member.Place(): "member 3 of message 7 of stream S",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestACheckpointCoversTheHandledPartOfABatch(t *testing.T) {
	at := time.Unix(9, 0)
	c := Checkpoint{Seq: 7, Partly: &Partly{Seq: 9, Time: at, Members: 2}}
	for _, tt := range []struct {
		ev   Event
		want bool
	}{
		{Event{Seq: 7}, true}, {Event{Seq: 7, Member: 5}, true}, {Event{Seq: 8}, false},
		{Event{Seq: 9, Member: 2, Time: at}, true}, {Event{Seq: 9, Member: 3, Time: at}, false},
		{Event{Seq: 9, Time: at}, false},                         // it is read as no batch now
		{Event{Seq: 9, Member: 2, Time: at.Add(1)}, false},       // another message
		{Event{Seq: 9, Member: 2, Time: at.UTC().Local()}, true}, // the same moment
	} {
		if got := c.Covers(&tt.ev); got != tt.want {
			t.Errorf("it covers %s at %v: %t", tt.ev.Number(), tt.ev.Time, got)
		}
	}
	if c.Last() != 9 || (Checkpoint{Seq: 7}).Last() != 7 {
		t.Error("the last message that is handled in part")
	}
}
