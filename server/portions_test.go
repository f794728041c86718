package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/engine"
	"edda/store"
)

// shelf holds dead letters. A redrive or a drop removes its dead letter, as a store does.
type shelf struct {
	*fakes
	stuck string // the letter at which the process is not able to go on
}

func (s *shelf) Drop(ctx context.Context, d edda.DeadLetter, by store.Audit) error {
	switch {
	case d.ID == s.stuck:
		return errors.New("no room on the disk")
	case d.Error == "stays":
		return edda.Classify(edda.Permanent, "it stays")
	}
	s.dead = slices.DeleteFunc(s.dead, func(other edda.DeadLetter) bool { return other.ID == d.ID })
	return s.fakes.Drop(ctx, d, by)
}

func (s *shelf) DeadLetters(after string, limit int) (out []edda.DeadLetter, err error) {
	for _, d := range s.dead {
		if inBytes(store.DeadPlace(d)) > inBytes(after) && len(out) < limit {
			out = append(out, d)
		}
	}
	return out, s.err
}

// inBytes is a place as it sorts.
func inBytes(place string) string {
	raw, _ := base64.RawURLEncoding.DecodeString(place) // the places are the store's own
	return string(raw)
}

func shelfOf(n int) *shelf {
	s := &shelf{fakes: newFakes()}
	for i := range n {
		at := time.Unix(1000, 0).Add(time.Duration(i) * time.Second).UTC()
		id := fmt.Sprintf("L%03d", i)
		s.dead = append(s.dead, edda.DeadLetter{ID: id, Time: at, Reason: edda.DeadUnmatched, Key: order(id), Event: edda.Event{Kind: edda.KindEvent, ID: "e" + id, Tenant: "default", Time: at}})
	}
	return s
}

func (s *shelf) drop(t *testing.T, query string) LetterPortion {
	t.Helper()
	code, text := call(t, start(t, s.fakes, func(o *Options) { o.DeadLetters = s }), "POST", "/v1/deadletters/drop?"+query, `{"why":"a test"}`, "x-edda-by: ann")
	var p LetterPortion
	if err := json.Unmarshal([]byte(text), &p); err != nil || code != 200 {
		t.Fatalf("%s: %d %s", query, code, text)
	}
	return p
}

// TestAnActOnManyLettersGoesOnWhereItWas in portions, each by a server that was
// started anew, past those that stay, and no letter that came later.
func TestAnActOnManyLettersGoesOnWhereItWas(t *testing.T) {
	s := shelfOf(250)
	s.dead[7].Error, s.dead[120].Error = "stays", "stays"
	s.dead = append(s.dead, edda.DeadLetter{ID: "young", Time: time.Now().Add(time.Hour), Reason: edda.DeadUnmatched, Key: order("young"), Event: edda.Event{Tenant: "default"}})
	first := s.drop(t, "")
	second := s.drop(t, "after="+first.Next)
	third := s.drop(t, "limit=51&after="+second.Next)
	if third.Next != "" {
		t.Errorf("there is a fourth: %+v", third)
	}
	var got []string
	for _, p := range []LetterPortion{first, second, third} {
		got = append(got, fmt.Sprintf("%d + %d %v", p.Done, p.Failed, p.Failures))
	}
	if want := []string{"99 + 1 [{L007 it stays}]", "99 + 1 [{L120 it stays}]", "50 + 0 []"}; !slices.Equal(got, want) {
		t.Errorf("portions %q, want %q", got, want)
	}
	var left []string
	for _, d := range s.dead {
		left = append(left, d.ID)
	}
	if !slices.Equal(left, []string{"L007", "L120", "young"}) || len(s.acts) != 248 {
		t.Errorf("left %v after %d acts", left, len(s.acts))
	}
	want := []string{
		"drop by ann of default//: all dead letters: 99 done, 1 failed; more to come (a test)",
		"drop by ann of default//: all dead letters: 99 done, 1 failed; more to come (a test)",
		"drop by ann of default//: all dead letters: 50 done, 0 failed (a test)",
	}
	if !slices.Equal(s.notes, want) {
		t.Errorf("audited %q", s.notes)
	}
}

func TestAPortionStopsWhereTheProcessCannotGoOn(t *testing.T) {
	s := shelfOf(6)
	s.dead[1].Error, s.stuck = "stays", "L003"
	p := s.drop(t, "saga=order&reason=unmatched")
	if p.Done != 2 || p.Failed != 1 || !strings.Contains(p.Stopped, "no room on the disk") || p.Next == "" {
		t.Fatalf("%+v", p)
	}
	if want := "drop by ann of default/order/: all dead letters of saga order that died of unmatched: 2 done, 1 failed; more to come (a test)"; !slices.Equal(s.notes, []string{want}) {
		t.Errorf("audited %q, want %q", s.notes, want)
	}
	s.stuck = ""
	if p = s.drop(t, "after="+p.Next); p.Done != 3 || p.Failed != 0 || p.Next != "" {
		t.Errorf("afterwards %+v", p)
	}
}

func TestManyLettersAreRedrivenInTheOrderOfTheirEvents(t *testing.T) {
	s := shelfOf(3)
	s.dead[0].Event.Time = s.dead[2].Event.Time.Add(time.Minute)
	s.send = func(context.Context, edda.Event) (engine.EventResult, error) {
		return engine.EventResult{Fate: edda.FateHandled}, nil
	}
	h := start(t, s.fakes)
	if code, text := call(t, h, "POST", "/v1/deadletters/redrive", "", "x-edda-why: mended"); code != 200 || !strings.Contains(text, `"done":3`) {
		t.Fatalf("%d %s", code, text)
	}
	var got []string
	for _, ev := range s.sent {
		got = append(got, ev.ID)
	}
	if want := []string{"deadletter/L001/redrive/1", "deadletter/L002/redrive/1", "deadletter/L000/redrive/1"}; !slices.Equal(got, want) {
		t.Errorf("sent %q", got)
	}
}

func TestSkipOfManyLettersPassesThoseThatHoldNothing(t *testing.T) {
	f := withLetters()
	f.send = func(context.Context, edda.Event) (engine.EventResult, error) {
		return engine.EventResult{Fate: edda.FateHandled}, nil
	}
	h := start(t, f)
	code, text := call(t, h, "POST", "/v1/deadletters/skip?saga=order", "", "x-edda-why: test events")
	if code != 200 || !strings.Contains(text, `"done":1`) || !strings.Contains(text, `"passed":3`) || len(f.sent) != 1 || f.sent[0].Type != edda.VerbSkip {
		t.Errorf("%d %s, sent %+v", code, text, f.sent)
	}
	for query, want := range map[string]string{"": "skip needs a reason", "after=x": "is no place among the dead letters", "after=e30": "is no place among the dead letters", "limit=101": "expected number <= 100", "reason=boredom": "reason"} {
		why := "x-edda-why: x"
		if query == "" {
			why = "x-edda-by: ann"
		}
		if code, text := call(t, h, "POST", "/v1/deadletters/skip?"+query, "", why); code != 422 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", query, code, text)
		}
	}
}

// TestMembersOfABatchAreDoneInItsOrder: they were stored in one moment.
func TestMembersOfABatchAreDoneInItsOrder(t *testing.T) {
	at := time.Unix(9, 0)
	of := func(seq uint64, member int) edda.DeadLetter {
		return edda.DeadLetter{Event: edda.Event{Stream: "S", Seq: seq, Member: member, Time: at}}
	}
	var got []string
	for _, d := range inOrder([]edda.DeadLetter{of(2, 10), of(2, 9), of(1, 0), of(2, 1)}) {
		got = append(got, d.Event.Number())
	}
	if want := []string{"1", "2:1", "2:9", "2:10"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
