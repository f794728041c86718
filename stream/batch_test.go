package stream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"edda"
	"edda/engine"
	"edda/internal/testkit"
	"edda/stream/wire"
)

// cloudEvent is a CloudEvent of the tenant, as JSON.
func cloudEvent(id, tenant string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"%s","source":"/shop","type":"shop.Paid","tenantid":"%s","data":{"id":"%s"}}`, id, tenant, id)
}

// publishBatch stores a batch of CloudEvents.
func (w *world) publishBatch(ctx context.Context, subject string, members ...string) {
	w.T.Helper()
	time.Sleep(time.Second) // virtual: the store times differ
	_, err := w.JS.PublishMsg(ctx, &nats.Msg{
		Subject: subject, Header: nats.Header{"content-type": {"application/cloudevents-batch+json"}},
		Data: []byte("[" + strings.Join(members, ",") + "]"),
	})
	w.Must(err)
}

// numbers are the places of the events in their streams, with a + where more members follow.
func numbers(events []edda.Event) (out []string) {
	for _, ev := range events {
		n := ev.Number()
		if ev.More {
			n += "+"
		}
		out = append(out, n)
	}
	return out
}

func TestTheMembersOfABatchComeInOrder(t *testing.T) {
	for name, subject := range map[string]string{wire.AggregateEvents: orders, "ORDERS": "orders.paid"} {
		bubble(t, func(ctx context.Context, w *world) {
			codec := w.others(ctx, ordersStream, wire.MappingOptions{})
			w.publishBatch(ctx, subject, cloudEvent("a", "acme"), "1", cloudEvent("b", "acme"))
			src, stop := w.open(ctx, nil, SourceOptions{Codec: codec})
			defer stop()
			past := fetch(ctx, t, src, 3)
			w.publishBatch(ctx, subject, cloudEvent("c", "acme"))
			w.publishBatch(ctx, subject)
			w.publishBatch(ctx, subject, cloudEvent("d", "acme"), cloudEvent("e", "acme"))
			live := fetch(ctx, t, src, 4)
			got, want := numbers(slices.Concat(past, live)), []string{"1:1+", "1:2+", "1:3", "2:1", "3", "4:1+", "4:2"}
			if !slices.Equal(got, want) {
				t.Errorf("%s gives %v, want %v", name, got, want)
			}
			if past[1].Malformed == "" || live[1].Malformed == "" || past[2].ID != "/shop b" {
				t.Errorf("%+v", past)
			}
			wantEnd(t, ends(ctx, t, src, name), 4, 4)
		})
	}
}

// TestABatchWaitsForRoomAsAWhole: a reader that ends meanwhile has none of its members.
func TestABatchWaitsForRoomAsAWhole(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		var batch []string
		for i := range wire.MaxMembers {
			batch = append(batch, cloudEvent(fmt.Sprint(i), "acme"))
		}
		for range 3 {
			w.publishBatch(ctx, orders, batch...)
		}
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		buffer := src.readers[0].buffer
		eventually(t, "two batches", func() bool { return buffer.len() == 2*wire.MaxMembers })
		src.Recheck()
		time.Sleep(time.Second)
		if n := buffer.len(); n != 2*wire.MaxMembers {
			t.Errorf("%d events in the buffer", n)
		}
		var at []string
		for i, ev := range fetch(ctx, t, src, 3*wire.MaxMembers) {
			if want := fmt.Sprintf("%d:%d", i/wire.MaxMembers+1, i%wire.MaxMembers+1); ev.Number() != want {
				at = append(at, ev.Number()+" instead of "+want)
			}
		}
		if len(at) > 0 {
			t.Errorf("%d events out of order, the first %s", len(at), at[0])
		}
	})
}

// TestOnlyTheMembersOfServedTenantsAreRead: the last of them is the last one of its message.
func TestOnlyTheMembersOfServedTenantsAreRead(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		codec := w.others(ctx, ordersStream, wire.MappingOptions{Tenant: "=body.tenantid"})
		w.publishBatch(ctx, "orders.paid", cloudEvent("a", "acme"), cloudEvent("b", "other"), cloudEvent("c", "acme"), cloudEvent("d", "other"))
		w.publishBatch(ctx, "orders.paid", cloudEvent("e", "other"))
		src, stop := w.open(ctx, nil, SourceOptions{Codec: codec, Tenants: wire.Tenants{"acme"}})
		defer stop()
		if got := numbers(fetch(ctx, t, src, 2)); !slices.Equal(got, []string{"1:1+", "1:3"}) {
			t.Errorf("read %v", got)
		}
		wantEnd(t, ends(ctx, t, src, "ORDERS"), 1, 2)
		past, err := OpenCatchUp(ctx, w.JS, engine.SagaTenant{Tenant: "other", Saga: "late"}, nil, SourceOptions{Codec: codec, Name: "store"})
		w.Must(err)
		defer past.Close()
		if got := numbers(fetch(ctx, t, past.Source, 3)); !slices.Equal(got, []string{"1:2+", "1:4", "2:1"}) {
			t.Errorf("the catch-up of the other tenant reads %v", got)
		}
	})
}

// TestHandledMembersAreNotAwaited: only they are of a tenant that is served, so nothing of their message
// comes that would move the position behind it.
func TestHandledMembersAreNotAwaited(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		codec := w.others(ctx, ordersStream, wire.MappingOptions{Tenant: "=body.tenantid"})
		w.publishBatch(ctx, "orders.paid", cloudEvent("a", "acme"), cloudEvent("b", "other"), cloudEvent("c", "acme"), cloudEvent("d", "other"))
		s, err := w.JS.Stream(ctx, "ORDERS")
		w.Must(err)
		m, err := s.GetMsg(ctx, 1)
		w.Must(err)
		for members, want := range map[int][]string{1: {"1:3"}, 2: {"1:3"}, 3: nil} {
			at := edda.Checkpoint{Stream: "ORDERS", Created: s.CachedInfo().Created, Partly: &edda.Partly{Seq: 1, Time: m.Time.UTC(), Members: members}}
			src, stop := w.open(ctx, []edda.Checkpoint{at}, SourceOptions{Codec: codec, Tenants: wire.Tenants{"acme"}})
			past, err := OpenCatchUp(ctx, w.JS, engine.SagaTenant{Tenant: "acme", Saga: "late"}, []edda.Checkpoint{at}, SourceOptions{Codec: codec, Name: "store"})
			w.Must(err)
			for _, src := range []*Source{src, past.Source} {
				if got := numbers(fetch(ctx, t, src, len(want))); !slices.Equal(got, want) {
					t.Errorf("behind %d members it reads %v, want %v", members, got, want)
				}
				none(ctx, t, src, time.Second)
				wantEnd(t, ends(ctx, t, src, "ORDERS"), uint64(len(want)), 1)
			}
			past.Close()
			stop()
		}
	})
}

// TestAReplayReadsABatchAsFarAsItIsHandled.
func TestAReplayReadsABatchAsFarAsItIsHandled(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.publishBatch(ctx, orders, cloudEvent("a", "acme"), cloudEvent("b", "acme"))
		w.publishBatch(ctx, orders, cloudEvent("c", "acme"), cloudEvent("d", "acme"), cloudEvent("e", "acme"))
		for members, want := range map[int][]string{0: {"1:1", "1:2"}, 2: {"1:1", "1:2", "2:1", "2:2"}} {
			at := w.checkpointAt(ctx, 1)
			if members > 0 {
				at.Partly = &edda.Partly{Seq: 2, Time: w.checkpointAt(ctx, 2).Time, Members: members}
			}
			var got []edda.Event
			_, err := NewPast(w.JS, w.codec).Each(ctx, "acme", []edda.Checkpoint{at}, func(ev edda.Event) error {
				got = append(got, ev)
				return nil
			})
			if err != nil || !slices.Equal(numbers(got), want) {
				t.Errorf("with %d members it reads %v, want %v: %v", members, numbers(got), want, err)
			}
		}
	})
}

// letterOf returns the dead letter of an event without its payload.
func letterOf(ev edda.Event) edda.DeadLetter {
	d := edda.DeadLetter{ID: "d1", Subject: ev.Subject, Event: ev, Cut: len(ev.Payload)}
	d.Event.Payload = nil
	return d
}

func TestADeadMemberIsReadBackAndSentAlone(t *testing.T) {
	for name, subject := range map[string]string{wire.AggregateEvents: orders, "ORDERS": "orders.paid"} {
		bubble(t, func(ctx context.Context, w *world) {
			codec := w.others(ctx, ordersStream, wire.MappingOptions{})
			w.publishBatch(ctx, subject, cloudEvent("a", "acme"), `{"oops":1}`, cloudEvent("b", "acme"))
			src, stop := w.open(ctx, nil, SourceOptions{Codec: codec})
			defer stop()
			events := fetch(ctx, t, src, 3)
			p := NewPublisher(w.JS, codec)
			if d, err := p.ReadBack(ctx, letterOf(events[2])); err != nil || string(d.Event.Payload) != `{"id":"b"}` {
				t.Errorf("%s: read back %s: %v", name, d.Event.Payload, err)
			}
			if d, err := p.ReadBack(ctx, letterOf(events[1])); err != nil || string(d.Event.Payload) != `"{\"oops\":1}"` {
				t.Errorf("%s: read back %s: %v", name, d.Event.Payload, err)
			}
			_, err := p.Resend(ctx, letterOf(events[1]), []byte(cloudEvent("mended", "acme")), "again-1")
			w.Must(err)
			if sent := fetch(ctx, t, src, 1)[0]; sent.ID != "/shop mended" || sent.Member != 0 || sent.Malformed != "" || string(sent.Payload) != `{"id":"mended"}` {
				t.Errorf("%s: sent %+v", name, sent)
			}
			far := letterOf(events[1])
			far.Event.Member = 4
			_, err = p.ReadBack(ctx, far)
			testkit.WantError(t, err, edda.Permanent, "is no batch with a member 4")
		})
	}
}

// TestABatchOfWhichNothingCameIsSentAgainAsABatch.
func TestABatchOfWhichNothingCameIsSentAgainAsABatch(t *testing.T) {
	for name, subject := range map[string]string{wire.AggregateEvents: orders, "ORDERS": "orders.paid"} {
		bubble(t, func(ctx context.Context, w *world) {
			codec := w.others(ctx, ordersStream, wire.MappingOptions{})
			w.publishBatch(ctx, subject)
			src, stop := w.open(ctx, nil, SourceOptions{Codec: codec})
			defer stop()
			dead := fetch(ctx, t, src, 1)[0]
			_, err := NewPublisher(w.JS, codec).Resend(ctx, letterOf(dead), []byte("["+cloudEvent("a", "acme")+","+cloudEvent("b", "acme")+"]"), "again-1")
			w.Must(err)
			if sent := fetch(ctx, t, src, 2); sent[0].ID != "/shop a" || sent[1].ID != "/shop b" {
				t.Errorf("%s: sent %+v", name, sent)
			}
		})
	}
}

// TestABatchThatIsLostHalfHandledIsALoss, which only an operator accepts.
func TestABatchThatIsLostHalfHandledIsALoss(t *testing.T) {
	for what, others := range map[string]int{"nothing is new": 0, "another message is there": 1, "the stream has grown": 3} {
		bubble(t, func(ctx context.Context, w *world) {
			w.sendMany("first", 2)
			restore := w.Backup()
			w.publishBatch(ctx, orders, cloudEvent("a", "acme"), cloudEvent("b", "acme"))
			cp := w.checkpointAt(ctx, 2)
			cp.Partly = &edda.Partly{Seq: 3, Time: w.checkpointAt(ctx, 3).Time, Members: 1}
			if src, err := OpenSource(ctx, w.JS, []edda.Checkpoint{cp}, SourceOptions{}); err != nil || src.Start()[0] != cp {
				t.Fatalf("before: %v", err)
			}
			restore()
			w.sendMany("other", others)
			_, err := OpenSource(ctx, w.JS, []edda.Checkpoint{cp}, SourceOptions{})
			testkit.WantError(t, err, edda.Permanent, "stream AGGREGATE_EVENTS lost the batch at 3, of which only the first 1 CloudEvents were handled")
			src, err := OpenSource(ctx, w.JS, []edda.Checkpoint{cp}, SourceOptions{AcceptLoss: true})
			w.Must(err)
			if at := src.Start()[0]; at.Seq != 2 || at.Partly != nil || !strings.Contains(src.Losses()[0].Accepted(), "goes on at message 3") {
				t.Errorf("%s: it goes on at %+v, %v", what, at, src.Losses())
			}
		})
	}
}

// TestABatchThatIsLostWithWhatWasHandledBeforeIsALoss: not everything that is missing was handled.
func TestABatchThatIsLostWithWhatWasHandledBeforeIsALoss(t *testing.T) {
	for said, others := range map[string]int{"ends at 1, but everything up to 2": 0, "wrote others in their place": 3} {
		bubble(t, func(ctx context.Context, w *world) {
			w.sendMany("first", 1)
			restore := w.Backup()
			w.sendMany("lost", 1)
			w.publishBatch(ctx, orders, cloudEvent("a", "acme"), cloudEvent("b", "acme"))
			cp := w.checkpointAt(ctx, 2)
			cp.Partly = &edda.Partly{Seq: 3, Time: w.checkpointAt(ctx, 3).Time, Members: 1}
			restore()
			w.sendMany("other", others)
			_, err := OpenSource(ctx, w.JS, []edda.Checkpoint{cp}, SourceOptions{})
			testkit.WantError(t, err, edda.Permanent, said, "of the batch at 3 only the first 1 CloudEvents were handled", "--accept-stream-loss")
			src, err := OpenSource(ctx, w.JS, []edda.Checkpoint{cp}, SourceOptions{AcceptLoss: true})
			w.Must(err)
			if at := src.Start()[0]; at.Seq != 1 || at.Partly != nil {
				t.Errorf("it goes on at %+v", at)
			}
		})
	}
}

// TestABatchMayLeadItsStream: what was handled before it has expired.
func TestABatchMayLeadItsStream(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.sendMany("first", 3)
		w.publishBatch(ctx, orders, cloudEvent("a", "acme"), cloudEvent("b", "acme"))
		cp := w.checkpointAt(ctx, 1)
		cp.Partly = &edda.Partly{Seq: 4, Time: w.checkpointAt(ctx, 4).Time, Members: 1}
		w.remove(ctx, 1, 2, 3)
		_, err := OpenSource(ctx, w.JS, []edda.Checkpoint{cp}, SourceOptions{})
		w.Must(err)
	})
}
