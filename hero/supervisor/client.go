package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"edda"
	"edda/hero"
	"edda/hero/jsonrpc"
)

// The errors of a call, each with edda's class.
var (
	// ErrUnsent: the supervisor did not receive the call, so it may be sent again. Temporary.
	ErrUnsent = errors.New("the supervisor was not reached")
	// ErrUnsure: the supervisor may have received the call. Ask before sending again. Temporary.
	ErrUnsure = errors.New("the supervisor may have got it")
	// ErrRefused: the supervisor refused the call. Permanent.
	ErrRefused = errors.New("the supervisor refused")
	// ErrUnknownJob: the supervisor has no such job. Permanent.
	ErrUnknownJob = errors.New("the supervisor does not know the job")
	// ErrNoMethod: the supervisor has no such method. Permanent.
	ErrNoMethod = errors.New("the supervisor does not have the method")
	// ErrUndeliverable: Mycelium refused the message before the supervisor got it. Permanent.
	ErrUndeliverable = errors.New("mycelium does not take it")
	// ErrNoReply: there is no reply to a call of an earlier process. Temporary.
	ErrNoReply = errors.New("no reply is there")
)

// Said returns the supervisor's own answer, if the error is one.
func Said(err error) (string, bool) {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		return "", false
	}
	return fmt.Sprintf("%s (%d)", strings.TrimSpace(e.Message), e.Code), true
}

// Missing reports whether a supervisor answered that a runner, a queue or the job is
// missing, for which supervisors use several codes.
func Missing(err error) bool {
	var e *jsonrpc.Error
	return errors.As(err, &e) && (e.Code == jsonrpc.NotFound || missing(e))
}

// Progress is the transport state of a call before its answer.
type Progress struct {
	MessageID string // of the transport; empty for HTTP
	Status    string // hero.TransportSent, …
	// Acknowledged: the supervisor has read the call.
	Acknowledged bool
}

// Transport carries one JSON-RPC request to one supervisor and returns the answer. Its
// errors are ErrUnsent, ErrUnsure and Permanent ones. It may be called concurrently.
type Transport interface {
	Carry(ctx context.Context, request []byte, id string, seen func(Progress)) ([]byte, error)
}

// Resumer is a Transport that keeps replies for a restarted caller. Resume works as that of
// a mycelium.Hub. It may be called concurrently.
type Resumer interface {
	Resume(ctx context.Context, ids []string, messageID string, only bool) ([]byte, error)
}

// Client calls one supervisor. Its methods may be called concurrently.
type Client struct {
	over   Transport
	secret string
	prefix string // of the requests' ids
	seq    atomic.Uint64
	shape  atomic.Int32 // of the parameters that the supervisor wants
}

// The shapes of parameters.
const (
	inList    = iota // [{…}], as in the documents
	maybeFlat        // {…}: the supervisor refused a list, and has not answered without one yet
	flat             // {…}: the supervisor answered without a list
)

// NewClient makes a client. prefix must be unique in the network for ever, because a late
// answer is matched by its request's id.
func NewClient(over Transport, secret, prefix string) *Client {
	return &Client{over: over, secret: secret, prefix: prefix}
}

// params are the parameters of every call. A method omits those that it does not have.
type params struct {
	Secret    string `json:"secret,omitempty"`
	Job       *Job   `json:"job,omitempty"`
	JobID     ID     `json:"job_id,omitempty"`
	CallerID  ID     `json:"caller_id,omitempty"`
	ContextID ID     `json:"context_id,omitempty"`
}

// NewID makes a unique id for a call of Run.
func (c *Client) NewID() string { return c.prefix + "." + strconv.FormatUint(c.seq.Add(1), 10) }

// Run has the supervisor run the job, and waits for its end. An error is one of the call; a
// failed job is none. If the answer does not count the supervisor's own runs, Run makes the
// job's retries. A caller that keeps the call's id can Resume it. Run reports the call's
// progress to seen, which may be nil.
func (c *Client) Run(ctx context.Context, id string, j hero.Job, seen func(Progress)) (hero.JobStatus, map[string]string, error) {
	wire := ToRun(j)
	for tries := wire.Retries; ; tries-- {
		var a Answer
		status, result, err := c.ended(ctx, "job.run", id, params{Secret: c.secret, Job: &wire}, seen, &a)
		if err != nil || status == hero.JobFinished || tries == 0 || a.Runs > 0 || ctx.Err() != nil {
			return status, result, err
		}
		wire.Attempt = max(wire.Attempt, 1) + 1 // the supervisor makes no retries
		id = c.NewID()
	}
}

// Resume waits for the reply to a call of an earlier process, by the id of that call or of
// the message that carried it. With only it looks at the replies that waited when this
// process started. ErrNoReply means that there is no reply, or can be none.
func (c *Client) Resume(ctx context.Context, id, messageID string, only bool) (hero.JobStatus, map[string]string, error) {
	over, ok := c.over.(Resumer)
	if !ok || id == "" && messageID == "" {
		return "", nil, edda.Classify(edda.Temporary, "%w", ErrNoReply)
	}
	var ids []string
	if id != "" {
		ids = []string{id, id + otherSuffix}
	}
	raw, err := over.Resume(ctx, ids, messageID, only)
	if err != nil {
		return "", nil, err
	}
	var a Answer
	if err := decode(raw, "", &a); err != nil {
		return "", nil, fmt.Errorf("job.run: %w", err)
	}
	return end("job.run", a)
}

// Status asks for a job's status. ErrUnknownJob means that the supervisor never got the job.
func (c *Client) Status(ctx context.Context, j hero.Job) (hero.JobStatus, error) {
	var s State
	if err := missingJob(c.call(ctx, "job.status", c.NewID(), c.of(j), &s, nil)); err != nil {
		return "", err
	}
	status, ok := s.Job()
	if !ok {
		return "", edda.Classify(edda.Temporary, "%w: job.status answers %.80q", ErrUnsure, s.Status)
	}
	return status, nil
}

// Result asks for the end of a job that has ended.
func (c *Client) Result(ctx context.Context, j hero.Job) (hero.JobStatus, map[string]string, error) {
	status, result, err := c.ended(ctx, "job.result", c.NewID(), c.of(j), nil, new(Answer))
	return status, result, missingJob(err)
}

// Stop ends a job that waits or runs.
func (c *Client) Stop(ctx context.Context, j hero.Job) error {
	return c.call(ctx, "job.stop", c.NewID(), c.of(j), nil, nil)
}

func (c *Client) of(j hero.Job) params {
	return params{Secret: c.secret, JobID: toID(j.ID), CallerID: toID(j.CallerID), ContextID: toID(j.ContextID)}
}

func (c *Client) ended(ctx context.Context, method, id string, p params, seen func(Progress), a *Answer) (hero.JobStatus, map[string]string, error) {
	if err := c.call(ctx, method, id, p, a, seen); err != nil {
		return "", nil, err
	}
	return end(method, *a)
}

// end reads the job's end in an answer.
func end(method string, a Answer) (hero.JobStatus, map[string]string, error) {
	status, result, ok := a.Ended()
	if !ok {
		return "", nil, edda.Classify(edda.Temporary, `%w: %s answers neither {"success": …} nor {"error": …}`, ErrUnsure, method)
	}
	return status, result, nil
}

// otherSuffix ends the id of a call that is repeated in the other shape, mostly the one
// without the list.
const otherSuffix = ".flat"

// call sends the parameters in a list, as in the documents, and again without the list if
// the supervisor refuses it. Concurrent calls then omit the list too, because the second
// call may be a job.run, which answers when the job ends. If the supervisor refuses those,
// they get the list.
func (c *Client) call(ctx context.Context, method, id string, p params, into any, seen func(Progress)) error {
	shape := c.shape.Load()
	err := c.send(ctx, method, id, p, shape != inList, into, seen)
	_, said := Said(err)
	switch {
	case shape == maybeFlat && !refused(err) && (err == nil || said):
		c.shape.Store(flat)
	case shape == inList && refused(err):
		c.shape.CompareAndSwap(inList, maybeFlat)
	}
	if shape == flat || !refused(err) {
		return err
	}
	other := c.send(ctx, method, id+otherSuffix, p, shape == inList, into, seen)
	_, said = Said(other)
	switch {
	case refused(other): // the shape is not the reason
		c.shape.CompareAndSwap(maybeFlat, inList)
		return err
	case other != nil && !said: // no answer, so nothing is known about the shape
	case shape == inList:
		c.shape.Store(flat)
	default:
		c.shape.CompareAndSwap(maybeFlat, inList)
	}
	return other
}

// refused reports whether the supervisor answered that it does not understand the
// parameters.
func refused(err error) bool {
	var e *jsonrpc.Error
	return errors.As(err, &e) && e.Code == jsonrpc.InvalidParams
}

func (c *Client) send(ctx context.Context, method, id string, p params, bare bool, into any, seen func(Progress)) error {
	if seen == nil {
		seen = func(Progress) {}
	}
	request, err := encode(method, id, p, bare)
	if err != nil {
		return edda.Classify(edda.Permanent, "encode %s: %w", method, err)
	}
	reply, err := c.over.Carry(ctx, request, id, seen)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if err := decode(reply, id, into); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

func encode(method, id string, p params, bare bool) ([]byte, error) {
	request := struct {
		Version string `json:"jsonrpc"`
		ID      string `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", id, method, []params{p}}
	if bare {
		request.Params = p
	}
	return json.Marshal(request)
}

// decode reads the answer to the request with that id; "" accepts any id.
func decode(reply []byte, id string, into any) error {
	var r struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result"`
		Error   *jsonrpc.Error  `json:"error"`
	}
	if err := json.Unmarshal(reply, &r); err != nil {
		return garbage(reply, "is no JSON-RPC")
	}
	if r.Error != nil {
		return refusal(r.Error)
	}
	if r.Result == nil {
		return garbage(reply, "has neither a result nor an error")
	}
	if want, _ := json.Marshal(id); id != "" && !bytes.Equal(bytes.TrimSpace(r.ID), want) {
		return garbage(reply, "answers another request")
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(r.Result, into); err != nil {
		return garbage(reply, "has a result of another shape")
	}
	return nil
}

// shown bounds how much of an answer an error quotes.
const shown = 80

func garbage(reply []byte, why string) error {
	return edda.Classify(edda.Temporary, "%w: its answer %s: %.*q", ErrUnsure, why, shown, reply)
}

const (
	// JSON-RPC leaves the codes from codeServer to codeServerLast to servers. Foreign
	// servers use codeServer for any internal error.
	codeServer     = -32000
	codeServerLast = -32099
	// noisy bounds the text of a foreign error.
	noisy = 300
)

// refusal turns an error that the supervisor answered into the caller's error.
func refusal(e *jsonrpc.Error) error {
	if len(e.Message) > noisy {
		e.Message = e.Message[:noisy] + "…"
	}
	e.Data = nil // it may be of any size, and repeat the request
	switch e.Code {
	case jsonrpc.NotFound:
		return edda.Classify(edda.Permanent, "%w: %w", ErrUnknownJob, e)
	case jsonrpc.MethodNotFound:
		return edda.Classify(edda.Permanent, "%w: %w", ErrNoMethod, e)
	case jsonrpc.Busy:
		return edda.Classify(edda.Temporary, "%w: %w", ErrUnsent, e)
	case jsonrpc.InternalError, jsonrpc.StorageError, codeServer:
		return edda.Classify(edda.Temporary, "%w: %w", ErrUnsure, e)
	}
	return edda.Classify(edda.Permanent, "%w: %w", ErrRefused, e)
}

// missing reports whether the text of an error names something that is missing, because
// foreign servers use the code of any error for that.
func missing(e *jsonrpc.Error) bool {
	switch e.Code {
	case codeServer, jsonrpc.InternalError:
	default:
		if e.Code > codeServer || e.Code < codeServerLast {
			return false
		}
	}
	text := strings.ToLower(e.Message)
	return slices.ContainsFunc([]string{"not found", "unknown job", "unknown runner", "unknown method", "no such", "not exist", "doesn't exist"},
		func(words string) bool { return strings.Contains(text, words) })
}

// missingJob reads the error of a call about one job: it tells a missing job from a missing
// method by the text.
func missingJob(err error) error {
	var e *jsonrpc.Error
	if !errors.As(err, &e) || !missing(e) {
		return err
	}
	switch text := strings.ToLower(e.Message); {
	case strings.Contains(text, "method"):
		return edda.Classify(edda.Permanent, "%w: %w", ErrNoMethod, e)
	case strings.Contains(text, "runner") && !strings.Contains(text, "job"):
		return err // it is not about the job
	}
	return edda.Classify(edda.Permanent, "%w: %w", ErrUnknownJob, e)
}
