package flowsaga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/engine"
	"edda/hero"
	"edda/hero/flow"
)

// maxResult bounds the bytes of a result on its way through the engine, which
// writes it with the flow's state; what a local runner recorded stays whole.
const maxResult = 64 << 10

// Inbox takes a message to an instance through the streams, and returns what
// became of it once that is committed. It may be called concurrently.
type Inbox interface {
	Send(ctx context.Context, message edda.Event) (engine.Outcome, error)
}

// Cells reads instances. It may be called concurrently.
type Cells interface {
	Cell(key edda.Key) (edda.Cell, error)
}

// The errors of a client, which are final.
var (
	// ErrNoFlow says that no such flow was started here.
	ErrNoFlow = edda.Classify(edda.Permanent, "no such flow was started here")
	// ErrFinished says that a flow has finished: it has its results.
	ErrFinished = edda.Classify(edda.Permanent, "the flow is finished and has its results: create another to run the jobs again")
)

// Client is how others reach flows. Its methods may be called concurrently; they
// return once what they did is durable.
type Client struct {
	tenant    string
	inbox     Inbox
	cells     Cells
	duplicate func(error) bool
}

// NewClient makes a client for the flows of one tenant. Duplicate tells the
// inbox's error for a message that was sent before from others.
func NewClient(tenant string, inbox Inbox, cells Cells, duplicate func(error) bool) *Client {
	return &Client{tenant: tenant, inbox: inbox, cells: cells, duplicate: duplicate}
}

// Start begins a flow. False means that it runs already. A flow that ended in
// error goes on: what it had completed is not run again.
func (c *Client) Start(ctx context.Context, d flow.Definition) (bool, error) {
	o, err := c.send(ctx, d.ContextID, d.FlowID, signalStart, ulid.Make().String(), d)
	switch {
	case err != nil:
		return false, err
	case o.Fate == edda.FateLate:
		return false, ErrFinished
	}
	return o.Fate == edda.FateHandled, nil
}

// Cancel ends a flow. False means that it had ended.
func (c *Client) Cancel(ctx context.Context, context, id uint32) (bool, error) {
	o, err := c.send(ctx, context, id, signalCancel, ulid.Make().String(), nil)
	return o.Fate == edda.FateHandled, err
}

// Met tells a flow that a prerequisite holds, and returns the jobs that were
// dispatched for it.
func (c *Client) Met(ctx context.Context, context, id uint32, name string) ([]uint32, error) {
	ready := []uint32{}
	o, err := c.send(ctx, context, id, signalMet, ulid.Make().String(), met{name})
	for _, out := range o.Outputs {
		var node uint32
		if out.Word != "dispatch" {
			continue
		}
		if _, err := fmt.Sscan(out.Step, &node); err == nil {
			ready = append(ready, node)
		}
	}
	return ready, err
}

// Report tells a flow what became of a node. The same report again is nothing new.
func (c *Client) Report(ctx context.Context, r hero.Report) error {
	r.Result = bounded(r.Result)
	_, err := c.send(ctx, r.ContextID, r.FlowID, signalReport, fmt.Sprintf("report/%d/%d/%s", r.ContextID, r.FlowID, r.ID), r)
	if err != nil && c.duplicate(err) {
		return nil // the stream has it, so it is applied or will be
	}
	return err
}

// bounded keeps a result small enough for one commit: values are cut, largest first come.
func bounded(result map[string]string) map[string]string {
	size := 0
	for k, v := range result {
		size += len(k) + len(v)
	}
	if size <= maxResult {
		return result
	}
	out := make(map[string]string, len(result))
	share := maxResult / len(result)
	for k, v := range result {
		if len(k) > share/2 {
			continue
		}
		if room := share - len(k); len(v) > room {
			v = cut(v, room) + "… (cut)"
		}
		out[k] = v
	}
	return out
}

// State reads a flow; false means that it was never started here.
func (c *Client) State(_ context.Context, context, id uint32) (flow.State, bool, error) {
	cell, err := c.cells.Cell(Key(c.tenant, context, id))
	if err != nil || cell.Instance == nil {
		return flow.State{}, false, err
	}
	s, err := stateOf(cell)
	return s, err == nil, err
}

// Running visits the flows among some instances that are under way.
func (c *Client) Running(instances []edda.Instance, visit func(flow.State) error) error {
	for _, in := range instances {
		cell, err := c.cells.Cell(in.Key)
		if err != nil {
			return err
		}
		if cell.Instance == nil || cell.Instance.Status.Finished() {
			continue // it ended meanwhile
		}
		s, err := stateOf(cell)
		if err == nil {
			err = visit(s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) send(ctx context.Context, context, id uint32, signal, message string, payload any) (engine.Outcome, error) {
	raw, err := json.Marshal(payload)
	if err != nil {
		return engine.Outcome{}, edda.Classify(edda.Permanent, "%s: %w", signal, err)
	}
	k := Key(c.tenant, context, id)
	o, err := c.inbox.Send(ctx, edda.Event{Kind: edda.KindSignal, ID: message, Tenant: c.tenant, Key: k, Type: signal, Payload: raw, Correlation: k.Correlation})
	switch {
	case err != nil:
		return o, err
	case o.Fate != edda.FateDead:
		return o, nil
	case o.Dead != nil && o.Dead.Reason != edda.DeadNoInstance:
		return o, edda.Classify(edda.Permanent, "%w", errors.New(o.Dead.Error))
	}
	return o, ErrNoFlow
}

// cut shortens a text without breaking a character.
func cut(s string, n int) string {
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}
