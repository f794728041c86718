package saga

import (
	"fmt"

	"edda"
)

// checkSize refuses a transition that makes an instance too large: its results, frames and timers
// grow with every round of a loop. While the instance ends it may have any size, because its steps
// must be undone.
func (r *run) checkSize() error {
	if !r.running() || r.unbounded {
		return nil
	}
	if n := r.in.Size(); n > r.p.o.MaxInstance {
		return r.poison("the instance is about %d bytes with its steps, frames and timers, more than the limit of %d: let children do the rounds, or keep what is large outside", n, r.p.o.MaxInstance)
	}
	return nil
}

// The queues of a key and the parked events of a tenant are bounded. An event beyond the bound
// becomes a dead letter. So it is not lost: an operator can redrive it once there is room, and it
// blocks no other key and no other tenant.

// queueUp holds an event behind the poison event while there is room.
func (a *application) queueUp(ev edda.Event) {
	if why := noRoom(a.limits(), a.cell.Held, ev); why != "" {
		a.deadLetterFull(ev, why+" behind a poison event: redrive or drop that one first")
		return
	}
	a.hold(ev)
}

// limits are the limits of the key's program; the defaults if none is loaded.
func (a *application) limits() Options {
	if p := a.program(); p != nil {
		return p.o
	}
	return Options{}.withDefaults()
}

// noRoomToPark says why an event cannot be parked; empty if it can.
func (a *application) noRoomToPark(p *Program, ev edda.Event) string {
	if a.crowded {
		return "the tenant may park no more events: start what those that wait are for, or let them expire"
	}
	if why := noRoom(p.o, a.cell.Parked, ev); why != "" {
		return why + " for an instance that has not begun"
	}
	return ""
}

func noRoom(o Options, queue []edda.Entry, ev edda.Event) string {
	if len(queue) >= o.MaxQueue {
		return fmt.Sprintf("%d events wait already", len(queue))
	}
	size := len(ev.Payload)
	for i := range queue {
		size += len(queue[i].Event.Payload)
	}
	if len(queue) > 0 && size > o.MaxQueueBytes {
		return fmt.Sprintf("%d bytes of events would wait, more than %d,", size, o.MaxQueueBytes)
	}
	return ""
}

// deadLetterFull makes a dead letter of an event for which there is no room. The key does not
// remember the event, so it may still be applied when it comes again.
func (a *application) deadLetterFull(ev edda.Event, why string) {
	a.add(edda.Transition{
		Event: ev, Fate: edda.FateDead, Dead: deadLetter(ev, a.cell.Key, edda.DeadFull, why),
		Outputs: []edda.Output{{Word: "dead", Name: nameOf(ev), Reason: edda.DeadFull}},
	})
}
