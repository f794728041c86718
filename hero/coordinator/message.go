package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
)

type messageGiven struct {
	ContextID uint32       `json:"context_id"`
	Message   hero.Message `json:"message"`
	callerParams
}

func (c *Coordinator) messageMethods() []jsonrpc.Method {
	return []jsonrpc.Method{
		define(c, "message.create", "Send a message: once, however often it is created. Admins may, each in its own name.", "message",
			[]int{jsonrpc.NotFound, jsonrpc.AlreadyExists}, c.createMessage),
		define(c, "message.load", "A message, with its status and logs. Readers, executors and admins may.", "", []int{jsonrpc.NotFound}, c.loadMessage),
		define(c, "message.list", "The context's messages. Readers, executors and admins may.", "", []int{jsonrpc.NotFound}, c.listMessages),
		define(c, "message.delete", "Remove a message. Admins may.", "", []int{jsonrpc.NotFound}, c.deleteMessage),
	}
}

func (c *Coordinator) createMessage(ctx context.Context, p messageGiven) (hero.Message, error) {
	caller, err := c.creator(ctx, p.callerParams, p.Message.CallerID)
	if err != nil {
		return hero.Message{}, err
	}
	p.Message.CallerID = caller
	m, err := c.checkMessage(p.Message, p.ContextID)
	if err != nil {
		return hero.Message{}, err
	}
	unlock, err := c.enter(ctx, p.ContextID, callerParams{ActorID: caller}, mayAdmin())
	if err != nil {
		return hero.Message{}, err
	}
	defer unlock()
	stored, err := c.db.Message(ctx, p.ContextID, caller, m.ID)
	switch {
	case err == nil && !sameMessage(stored, m):
		return hero.Message{}, conflict(m.Key(), "it was sent, with another content", "give the new message another id")
	case err == nil:
		return showMessage(stored), nil
	case !errors.Is(err, redisdb.ErrNotFound):
		return hero.Message{}, err
	}
	if err := c.refers(ctx, m); err != nil {
		return hero.Message{}, err
	}
	if err := c.maySendTo(ctx, m); err != nil {
		return hero.Message{}, err
	}
	return c.send(ctx, m)
}

// send stores the message and pushes its key on msg_out, in one step that is
// known by the message's key.
func (c *Coordinator) send(ctx context.Context, m hero.Message) (hero.Message, error) {
	_, fresh, err := c.db.Send(ctx, m.ContextID, "rpc/"+m.Key(), m)
	if err != nil {
		return hero.Message{}, err
	}
	sent, err := c.db.Message(ctx, m.ContextID, m.CallerID, m.ID)
	if errors.Is(err, redisdb.ErrNotFound) && !fresh {
		return sent, conflict(m.Key(), "it was sent before, and deleted", "give the new message another id")
	}
	return showMessage(sent), err
}

// checkMessage refuses what no message may be, and fills in what may be left
// out. What the server alone sets is dropped.
func (c *Coordinator) checkMessage(m hero.Message, context uint32) (hero.Message, error) {
	if err := checkEnvelope(m); err != nil {
		return m, err
	}
	if err := sameContext("message.context_id", &m.ContextID, context); err != nil {
		return m, err
	}
	if m.MessageFormat == "" {
		m.MessageFormat = hero.FormatText
	}
	m.Job = slices.Clone(m.Job)
	for i := range m.Job {
		at := fmt.Sprintf("message.job[%d]", i)
		if m.Job[i].CallerID != 0 && m.Job[i].CallerID != m.CallerID {
			return m, denied(m.CallerID, "", "may not send a job of another actor", "give the caller's own id as "+at+".caller_id")
		}
		m.Job[i].CallerID = m.CallerID
		j, err := c.checkJob(at, m.Job[i], context)
		if err != nil {
			return m, err
		}
		j.Status = hero.JobDispatched
		m.Job[i] = j
	}
	for i := range m.Nodes {
		m.Nodes[i].NodeStatus = ""
	}
	m.Job, m.Nodes, m.Logs = list(m.Job), list(m.Nodes), []hero.Log{}
	m.Status, m.CreatedAt, m.UpdatedAt = hero.MessageDispatched, 0, 0
	m.TransportID, m.TransportStatus, m.Attempt = "", "", 0
	m.Origin, m.Via = "", "" // a message that is created here came from nowhere else
	return m, nil
}

func checkEnvelope(m hero.Message) error {
	if err := checkID("message.id", m.ID); err != nil {
		return err
	}
	if err := checkKnown("message", m.Unknown, "leave it out, or say it by a field that messages have"); err != nil {
		return err
	}
	switch m.MessageType {
	case hero.MessageJob, hero.MessageChat, hero.MessageMail:
	case "":
		return invalid("message.message_type", "is missing: want job, chat or mail")
	default:
		return invalid("message.message_type", "is %s: want job, chat or mail", m.MessageType)
	}
	if m.MessageType == hero.MessageJob && len(m.Job) == 0 && m.FlowID == 0 {
		return invalid("message.job", "is empty, but the message is of type job, and names no flow to run (flow_id)")
	}
	if err := checkText("message.message", m.Message, maxScript); err != nil {
		return err
	}
	if err := checkWord("message.topic", m.Topic, maxName); err != nil {
		return err
	}
	if err := checkWord("message.reply_to", m.ReplyTo, maxName); err != nil {
		return err
	}
	if err := checkCount("message.job", len(m.Job)); err != nil {
		return err
	}
	return checkNodes("message.nodes", m.Nodes)
}

// sameMessage tells whether the two say the same; what happened to the stored
// one on its way does not count.
func sameMessage(stored, m hero.Message) bool {
	if len(stored.Job) != len(m.Job) || stored.Message != m.Message || stored.MessageType != m.MessageType || stored.MessageFormat != m.MessageFormat ||
		stored.Timeout != m.Timeout || stored.TimeoutAck != m.TimeoutAck || stored.TimeoutResult != m.TimeoutResult ||
		m.To != 0 && stored.To != m.To || m.FlowID != 0 && stored.FlowID != m.FlowID {
		return false
	}
	for i := range m.Job {
		if stored.Job[i].ID != m.Job[i].ID || !sameJob(showJob(stored.Job[i]), m.Job[i]) {
			return false
		}
	}
	return true
}

// refers checks what the message refers to: whom it is for, its flow, which must
// be the caller's own, and its jobs, which must not be others of a started flow.
func (c *Coordinator) refers(ctx context.Context, m hero.Message) error {
	if m.To != 0 {
		if _, err := c.loadedActor(ctx, m.To); err != nil {
			return err
		}
	}
	for _, j := range m.Job {
		stored, err := c.db.Job(ctx, m.ContextID, m.CallerID, j.ID)
		if err == nil && !sameJob(stored, j) {
			err = c.inNoFlow(ctx, stored, "change")
		}
		if err != nil && !errors.Is(err, redisdb.ErrNotFound) {
			return err
		}
	}
	if m.FlowID == 0 {
		return nil
	}
	f, err := c.loadedFlow(ctx, m.ContextID, m.FlowID)
	if no := (*jsonrpc.Error)(nil); errors.As(err, &no) && no.Code == jsonrpc.NotFound && len(m.Job) > 0 {
		return c.unused(ctx, hero.Flow{ID: m.FlowID, ContextID: m.ContextID}) // it carries the flow
	}
	if err == nil && f.CallerID != m.CallerID {
		return denied(m.CallerID, f.Key(), "may not send for a flow of another actor", "leave flow_id out")
	}
	return err
}

// maySendTo checks the caller's right in another context of this Redis that the message
// is sent to.
func (c *Coordinator) maySendTo(ctx context.Context, m hero.Message) error {
	if m.TargetContext == 0 || m.TargetContext == m.ContextID {
		return nil
	}
	there, err := c.db.Context(ctx, m.TargetContext)
	if errors.Is(err, redisdb.ErrNotFound) {
		return nil // it may be another node's, which decides by itself
	}
	if err != nil {
		return err
	}
	may, list := there.MayRead(m.CallerID), "readers, executors or admins"
	if m.MessageType == hero.MessageJob {
		may, list = there.MayExecute(m.CallerID), "executors or admins"
	}
	if !may {
		return denied(m.CallerID, there.Key(), "may not send to this context", "leave target_context out, or ask one of its admins to add the actor to "+list)
	}
	return nil
}

func (c *Coordinator) loadMessage(ctx context.Context, p owned) (hero.Message, error) {
	if err := c.seeOwned(ctx, p); err != nil {
		return hero.Message{}, err
	}
	v, err := c.redaction(ctx, p.ContextID, p.caller())
	if err != nil {
		return hero.Message{}, err
	}
	m, err := c.loadedMessage(ctx, p.ContextID, p.CallerID, p.ID)
	return v.message(m), err
}

func (c *Coordinator) loadedMessage(ctx context.Context, context, caller, id uint32) (hero.Message, error) {
	m, err := c.db.Message(ctx, context, caller, id)
	if errors.Is(err, redisdb.ErrNotFound) {
		return m, notFound(hero.MessageKey(caller, id), "look with message.list, or send it with message.create")
	}
	return showMessage(m), err
}

func showMessage(m hero.Message) hero.Message {
	m.Job, m.Nodes, m.Logs = list(m.Job), list(m.Nodes), list(m.Logs)
	for i := range m.Job {
		m.Job[i] = showJob(m.Job[i])
	}
	return m
}

func (c *Coordinator) listMessages(ctx context.Context, p listing) ([]hero.Message, error) {
	if err := c.browse(ctx, p); err != nil {
		return nil, err
	}
	v, err := c.redaction(ctx, p.ContextID, p.callerParams)
	if err != nil {
		return nil, err
	}
	all, err := c.db.Messages(ctx, p.ContextID)
	all, err = withUnreadable(c, all, err, func(e *hero.FieldError) hero.Message {
		caller, id := idsOf(e.Key)
		return hero.Message{ID: id, CallerID: caller, ContextID: p.ContextID, MessageType: hero.MessageJob, MessageFormat: hero.FormatText, Status: hero.MessageError, Unreadable: e.Error()}
	}, func(a, b hero.Message) int {
		return cmp.Or(cmp.Compare(a.CallerID, b.CallerID), cmp.Compare(a.ID, b.ID))
	})
	return cut(p.page, all, func(m hero.Message) hero.Message { return v.message(showMessage(m)) }), err
}

func (c *Coordinator) deleteMessage(ctx context.Context, p owned) (bool, error) {
	if err := p.check(); err != nil {
		return false, err
	}
	unlock, err := c.enter(ctx, p.ContextID, p.caller(), mayAdmin())
	if err != nil {
		return false, err
	}
	defer unlock()
	if _, err := c.loadedMessage(ctx, p.ContextID, p.CallerID, p.ID); err != nil {
		return false, err
	}
	return true, c.db.DeleteMessage(ctx, p.ContextID, p.CallerID, p.ID)
}
