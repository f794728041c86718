package redisdb

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"edda/hero"
	"edda/internal/testkit"
)

func TestAMessageTakesLegalStepsOnly(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	statuses := []hero.MessageStatus{hero.MessageDispatched, hero.MessageAcknowledged, hero.MessageError, hero.MessageProcessed}
	for _, from := range statuses {
		for _, to := range statuses {
			testkit.Must(t, c.Del(ctx, "message:12:5").Err())
			testkit.Must(t, d.PutMessage(ctx, in, hero.Message{ID: 5, CallerID: 12, Status: from, TransportID: "old"}))
			moved, err := d.MoveMessage(ctx, in, "message:12:5", to, MessageChange{TransportID: "new", TransportStatus: hero.TransportSent, Topic: "t", TargetContext: 8})
			m, getErr := d.Message(ctx, in, 12, 5)
			testkit.Must(t, getErr)
			changed := m.TransportID == "new" && m.TransportStatus == hero.TransportSent && m.Topic == "t" && m.TargetContext == 8
			same := m.TransportID == "old" && m.Topic == "" && m.Status == from
			var right bool
			switch legal := from.MayBecome(to); {
			case !legal:
				right = errors.Is(err, ErrIllegal) && !moved && same
			case from == to && from.Ended():
				right = err == nil && !moved && same
			case from == to:
				right = err == nil && !moved && changed && m.Status == to
			default:
				right = err == nil && moved && changed && m.Status == to
			}
			if !right {
				t.Errorf("%s to %s: %v %v, is %+v", from, to, moved, err, m)
			}
		}
	}
	_, err := d.MoveMessage(ctx, in, "message:12:6", hero.MessageError, MessageChange{})
	is(t, err, ErrNotFound)
	_, err = d.MoveMessage(ctx, in, "nonsense", hero.MessageError, MessageChange{})
	if err == nil {
		t.Error("a key that is none")
	}
}

func TestAChangeOfNothingWritesNothing(t *testing.T) {
	d, in, c := fresh(t)
	ctx := t.Context()
	testkit.Must(t, d.PutMessage(ctx, in, hero.Message{ID: 5, CallerID: 12, TransportID: "x"}))
	before := hashOf(t, c, "message:12:5")
	if moved, err := d.MoveMessage(ctx, in, "message:12:5", hero.MessageDispatched, MessageChange{}); err != nil || moved {
		t.Fatal(moved, err)
	}
	if diff := cmp.Diff(before, hashOf(t, c, "message:12:5")); diff != "" {
		t.Error(diff)
	}
}

func TestTheLogIsBoundedAndInOrder(t *testing.T) {
	d, in, _ := fresh(t)
	ctx := t.Context()
	testkit.Must(t, d.PutMessage(ctx, in, hero.Message{ID: 5, CallerID: 12}))
	var many []hero.Log
	for n := range hero.MaxLogs {
		many = append(many, hero.Log{Text: strconv.Itoa(n)})
	}
	testkit.Must(t, d.AppendLog(ctx, in, "message:12:5", many...))
	testkit.Must(t, d.AppendLog(ctx, in, "message:12:5", hero.Log{Time: 5, Level: "info", Source: "router", Text: "last"}))
	m, err := d.Message(ctx, in, 12, 5)
	testkit.Must(t, err)
	if len(m.Logs) != hero.MaxLogs || m.Logs[0].Text != "1" || m.Logs[hero.MaxLogs-1] != (hero.Log{Time: 5, Level: "info", Source: "router", Text: "last"}) {
		t.Errorf("%d lines, %+v to %+v", len(m.Logs), m.Logs[0], m.Logs[len(m.Logs)-1])
	}
	is(t, d.AppendLog(ctx, in, "message:12:6", hero.Log{Text: "x"}), ErrNotFound)
}

func TestLogLinesOfConcurrentWritersAreKept(t *testing.T) {
	d, in, _ := fresh(t)
	ctx := t.Context()
	testkit.Must(t, d.PutMessage(ctx, in, hero.Message{ID: 5, CallerID: 12}))
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			if err := d.AppendLog(ctx, in, "message:12:5", hero.Log{Text: fmt.Sprint("line ", n)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	m, err := d.Message(ctx, in, 12, 5)
	testkit.Must(t, err)
	seen := map[string]bool{}
	for _, l := range m.Logs {
		seen[l.Text] = true
	}
	if len(m.Logs) != 12 || len(seen) != 12 {
		t.Errorf("%v", m.Logs)
	}
}

func TestALogLineWhoseAnswerIsLostStandsOnce(t *testing.T) {
	broken(t, logField, func(t *testing.T, d *DB, in uint32) {
		ctx := t.Context()
		testkit.Must(t, d.PutMessage(ctx, in, hero.Message{ID: 5, CallerID: 12}))
		testkit.Must(t, d.AppendLog(ctx, in, "message:12:5", hero.Log{Text: "once"}))
		if m, err := d.Message(ctx, in, 12, 5); err != nil || len(m.Logs) != 1 {
			t.Error(m.Logs, err)
		}
	})
}

func TestAMessagesStepWhoseAnswerIsLostIsKnownAgain(t *testing.T) {
	broken(t, stepField, func(t *testing.T, d *DB, in uint32) {
		ctx := t.Context()
		testkit.Must(t, d.PutMessage(ctx, in, hero.Message{ID: 5, CallerID: 12}))
		if moved, err := d.MoveMessage(ctx, in, "message:12:5", hero.MessageProcessed, MessageChange{}); err != nil || !moved {
			t.Error(moved, err)
		}
	})
}
