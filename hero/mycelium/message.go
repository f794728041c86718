package mycelium

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Message is one that arrived. Whom it is from the node has verified.
type Message struct {
	ID      string `json:"id"` // a reply has that of what it answers
	SrcIP   string `json:"srcIp"`
	SrcPK   string `json:"srcPk"`
	DstIP   string `json:"dstIp"`
	DstPK   string `json:"dstPk"`
	Topic   []byte `json:"topic,omitempty"`
	Payload []byte `json:"payload"`
}

// Pushed is what became of a push: its id, and the reply if one came in time.
type Pushed struct {
	ID    string
	Reply *Message
}

// State is how far a message that was pushed has got.
type State string

// The states of a message. Sent of the transport is StateSending, delivered is
// StateReceived.
const (
	StatePending  State = "pending"  // the other node has not been heard of
	StateSending  State = "sending"  // on its way
	StateReceived State = "received" // the other node has it
	StateRead     State = "read"     // somebody popped it there
	StateAborted  State = "aborted"  // given up; it was almost certainly not received
	StateUnknown  State = "unknown"  // forgotten; nothing follows from it
)

// API is a Mycelium node. Its methods may be called concurrently.
type API interface {
	// Push sends a message. With a wait, of whole seconds, the reply is in the answer
	// if it came by then, and else in the inbox. ErrRefused and ErrUnsent say that
	// nothing was sent; after any other error it may have been.
	Push(ctx context.Context, dst Destination, topic string, payload []byte, wait time.Duration) (Pushed, error)
	// Pop takes the first message with exactly this topic, or with any where topic
	// is nil; nil when there is none. While it waits no other call is answered.
	Pop(ctx context.Context, topic *string, wait time.Duration) (*Message, error)
	// Reply answers a message, to the key that it came from.
	Reply(ctx context.Context, to Message, payload []byte) error
	// Status tells how far a message is that was pushed here.
	Status(ctx context.Context, id string) (State, error)
}

var (
	// ErrRefused: the node does not take the message, now or ever.
	ErrRefused = errors.New("mycelium refuses the message")
	// ErrUnsent: the node was not reached, so nothing was sent.
	ErrUnsent = errors.New("mycelium was not reached")
	// ErrAborted: the node gave up sending the message.
	ErrAborted = errors.New("mycelium gave up the message")
)

// answerWait bounds one request to the node, beyond what it is asked to wait.
const answerWait = 10 * time.Second

// maxAnswer bounds what a node answers: a message of 10 MiB in base64.
const maxAnswer = 16 << 20

// bounded gives a request to the node an end.
func bounded(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, wait+answerWait)
}

// seconds rounds up: half a second of waiting is not none.
func seconds(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d + time.Second - 1) / time.Second)
}

// unsent tells whether an error came before anything was sent.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// untaken tells whether an HTTP status says that nothing was done: it is too busy,
// or something else listens there.
func untaken(status int) bool {
	return status >= 400 && status < 500 || status == http.StatusServiceUnavailable
}

// outgoing is a message as both APIs take it.
type outgoing struct {
	Dst     Destination `json:"dst"`
	Topic   []byte      `json:"topic,omitempty"` // base64, as Go writes bytes
	Payload []byte      `json:"payload"`
}

func newOutgoing(dst Destination, topic string, payload []byte) (outgoing, error) {
	if (dst.IP == "") == (dst.PK == "") {
		return outgoing{}, fmt.Errorf("%w: a destination is an address or a key", ErrRefused)
	}
	if len(topic) > MaxTopic {
		return outgoing{}, fmt.Errorf("%w: its topic has %d bytes, at most %d are possible", ErrRefused, len(topic), MaxTopic)
	}
	if payload == nil {
		payload = []byte{} // null is no payload
	}
	return outgoing{Dst: dst, Topic: []byte(topic), Payload: payload}, nil
}

// pushAnswer is a message that is the reply, or the id alone.
func pushAnswer(raw []byte) (Pushed, error) {
	var m Message
	if err := json.Unmarshal(raw, &m); err != nil {
		return Pushed{}, fmt.Errorf("read the answer to a push: %w", err)
	}
	switch {
	case m.ID == "":
		return Pushed{}, errors.New("the answer to a push has no id")
	case m.SrcPK == "":
		return Pushed{ID: m.ID}, nil
	}
	return Pushed{ID: m.ID, Reply: &m}, nil
}

// info is what a node tells of a message that was pushed.
type info struct {
	State stateField `json:"state"`
}

func (i info) known() (State, error) {
	if i.State == "" {
		return "", errors.New("the answer says no state of the message")
	}
	return State(i.State), nil
}

// stateField is a word, or an object with a word that says more.
type stateField State

func (s *stateField) UnmarshalJSON(raw []byte) error {
	var word string
	if json.Unmarshal(raw, &word) != nil {
		var more map[string]json.RawMessage
		if err := json.Unmarshal(raw, &more); err != nil {
			return err
		}
		if _, ok := more[string(StateSending)]; ok && len(more) == 1 {
			word = string(StateSending)
		}
	}
	switch State(word) {
	case StatePending, StateSending, StateReceived, StateRead, StateAborted:
		*s = stateField(word)
		return nil
	}
	return fmt.Errorf("an unknown state of a message: %.80s", raw)
}
