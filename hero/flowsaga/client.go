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

// maxResult bounds a result, in bytes, because the engine writes it with the flow's state. The
// job's hash, which a local runner writes, keeps the whole result.
const maxResult = 64 << 10

// Inbox sends a message to an instance through the streams, and returns its outcome once that
// is committed. It may be called concurrently.
type Inbox interface {
	Send(ctx context.Context, message edda.Event) (engine.EventResult, error)
}

// Cells reads instances. It may be called concurrently.
type Cells interface {
	Cell(key edda.Key) (edda.Cell, error)
}

// The permanent errors of a client.
var (
	// ErrNoFlow means that no such flow was started here.
	ErrNoFlow = edda.Classify(edda.Permanent, "no such flow was started here")
	// ErrFinished means that a flow is finished and has its results.
	ErrFinished = edda.Classify(edda.Permanent, "the flow is finished and has its results: create another to run the jobs again")
)

// Client sends commands to flows through the streams. Its methods may be called concurrently.
// They return once their change is durable.
type Client struct {
	tenant    string
	inbox     Inbox
	cells     Cells
	duplicate func(error) bool
}

// NewClient makes a client for the flows of one tenant. duplicate recognises the inbox's error
// for a message that was sent before.
func NewClient(tenant string, inbox Inbox, cells Cells, duplicate func(error) bool) *Client {
	return &Client{tenant: tenant, inbox: inbox, cells: cells, duplicate: duplicate}
}

// Start starts a flow. False means that it runs already. A flow that ended in error resumes
// without the jobs that it completed.
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

// Cancel ends a flow. False means that it has ended already.
func (c *Client) Cancel(ctx context.Context, context, id uint32) (bool, error) {
	o, err := c.send(ctx, context, id, signalCancel, ulid.Make().String(), nil)
	return o.Fate == edda.FateHandled, err
}

// Met tells a flow that a prerequisite holds, and returns the jobs that the flow dispatches
// for it.
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

// Report tells a flow the progress of a node. A repeated report changes nothing.
func (c *Client) Report(ctx context.Context, r hero.Report) error {
	r.Result = bounded(r.Result)
	_, err := c.send(ctx, r.ContextID, r.FlowID, signalReport, fmt.Sprintf("report/%d/%d/%s", r.ContextID, r.FlowID, r.ID), r)
	if err != nil && c.duplicate(err) {
		return nil // the stream has it: it is applied, or will be
	}
	return err
}

// bounded cuts the values of a result to equal shares of maxResult.
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

// State reads a flow. False means that it was never started here.
func (c *Client) State(_ context.Context, context, id uint32) (flow.State, bool, error) {
	cell, err := c.cells.Cell(Key(c.tenant, context, id))
	if err != nil || cell.Instance == nil {
		return flow.State{}, false, err
	}
	s, err := stateOf(cell)
	return s, err == nil, err
}

// Running visits the running flows among some instances.
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

func (c *Client) send(ctx context.Context, context, id uint32, signal, message string, payload any) (engine.EventResult, error) {
	raw, err := json.Marshal(payload)
	if err != nil {
		return engine.EventResult{}, edda.Classify(edda.Permanent, "%s: %w", signal, err)
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
