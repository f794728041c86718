package effects

import (
	"testing"
	"testing/synctest"
	"time"

	"edda"
)

const (
	twiceNever = "effect: charge\nhttp: {url: x}\ndelivery: at_most_once\nretry: {max: 1}\nresult: {id: =body.id}\n"
	twiceMaybe = "effect: charge\nhttp: {url: x}\nretry: {max: 1}\nresult: {id: =body.id}\n"
)

// TestACommandOfALostLedgerWasCalledAgain: the shared ledger is another one than before. What
// was sent to it before may have been called, and what is sent later was not.
func TestACommandOfALostLedgerWasCalledAgain(t *testing.T) {
	lost := time.Hour // after the beginning
	for _, c := range []struct {
		name, manifest string
		sent           time.Duration
		revoke         bool
		calls          int
		want           edda.Outcome
	}{
		{"at_most_once, sent before", twiceNever, lost - 1, false, 0, edda.TimedOut},
		{"at_most_once, sent after", twiceNever, lost, false, 1, edda.Succeeded},
		{"at_least_once, sent before", twiceMaybe, lost - 1, false, 1, edda.Succeeded},
		{"revoked, long after", twiceMaybe, 2 * lost, true, 0, edda.TimedOut},
		{"revoked, later than commands come", twiceMaybe, lost + DefaultRetention, true, 0, edda.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newShared()
				began := time.Now()
				s.since = began.Add(lost)
				h := peer(t, s, "worker", c.manifest)
				command := cmd("c1")
				if c.revoke {
					command = revoke("c1")
				}
				command.Sent = began.Add(c.sent)
				time.Sleep(max(c.sent, lost) + time.Minute)
				h.send(command)
				time.Sleep(time.Minute)
				synctest.Wait()
				if r := h.one(t); r.Outcome != c.want || h.bank.count() != c.calls {
					t.Errorf("%s after %d calls: %s", r.Outcome, h.bank.count(), r.Payload)
				}
			})
		})
	}
}

// TestACommandWaitsWhileTheLedgerCannotBeAsked since when it knows.
func TestACommandWaitsWhileTheLedgerCannotBeAsked(t *testing.T) {
	for _, revoked := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := newShared()
			s.mute = true
			h := peer(t, s, "worker", twiceNever)
			command := cmd("c1")
			if revoked {
				command = revoke("c1")
			}
			command.Sent = time.Now()
			h.send(command)
			time.Sleep(time.Minute)
			synctest.Wait()
			if h.bank.count() != 0 || len(h.got()) != 0 {
				t.Errorf("%d calls, results %v", h.bank.count(), h.got())
			}
			s.mu.Lock()
			s.mute = false
			s.mu.Unlock()
			time.Sleep(time.Minute)
			want, calls := edda.Succeeded, 1
			if revoked {
				want, calls = edda.Failed, 0
			}
			if r := h.one(t); r.Outcome != want || h.bank.count() != calls {
				t.Errorf("%s after %d calls: %s", r.Outcome, h.bank.count(), r.Payload)
			}
		})
	}
}
