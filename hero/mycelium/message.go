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

// Message is an arrived message. The node has verified its sender.
type Message struct {
	ID      string `json:"id"` // a reply has the id of the message that it answers
	SrcIP   string `json:"srcIp"`
	SrcPK   string `json:"srcPk"`
	DstIP   string `json:"dstIp"`
	DstPK   string `json:"dstPk"`
	Topic   []byte `json:"topic,omitempty"`
	Payload []byte `json:"payload"`
}

// Pushed is the answer to a push: the message's id, and the reply if one came in time.
type Pushed struct {
	ID    string
	Reply *Message
}

// State is the state of a pushed message.
type State string

// The states of a message. The transport status sent is StateSending, delivered is
// StateReceived.
const (
	StatePending  State = "pending"  // the other node has not answered yet
	StateSending  State = "sending"  // in transit
	StateReceived State = "received" // the other node has it
	StateRead     State = "read"     // popped at the other node
	StateAborted  State = "aborted"  // given up, and almost certainly not received
	StateUnknown  State = "unknown"  // forgotten by the node; says nothing about the message
)

// API is a Mycelium node. Its methods may be called concurrently.
type API interface {
	// Push sends a message. With a wait, in whole seconds, it returns a reply that comes
	// in time; a later one goes to the inbox. ErrRefused and ErrUnsent mean that the
	// message was not sent; after any other error it may have been.
	Push(ctx context.Context, dst Peer, topic string, payload []byte, wait time.Duration) (Pushed, error)
	// Pop takes the first message with exactly this topic, or with any topic if that is
	// nil. It returns nil if there is none. While it waits it blocks all other calls.
	Pop(ctx context.Context, topic *string, wait time.Duration) (*Message, error)
	// Reply sends an answer to the key that sent the message.
	Reply(ctx context.Context, to Message, payload []byte) error
	// Status returns the state of a message that this node pushed.
	Status(ctx context.Context, id string) (State, error)
}

var (
	// ErrRefused means that the node will never take the message.
	ErrRefused = errors.New("mycelium refuses the message")
	// ErrUnsent means that the node was not reached.
	ErrUnsent = errors.New("mycelium was not reached")
	// ErrAborted means that the node gave up sending the message.
	ErrAborted = errors.New("mycelium gave up the message")
)

// answerWait bounds one request to the node, without the wait that it asks for.
const answerWait = 10 * time.Second

// maxAnswer bounds a node's answer: a message of 10 MiB in base64.
const maxAnswer = 16 << 20

// bounded gives a request to the node a deadline.
func bounded(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, wait+answerWait)
}

// seconds rounds a wait up.
func seconds(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d + time.Second - 1) / time.Second)
}

// unsent reports whether an error came before the request was sent.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// untaken reports whether an HTTP status means that nothing was done: the node is too busy, or
// another program listens there.
func untaken(status int) bool {
	return status >= 400 && status < 500 || status == http.StatusServiceUnavailable
}

// outgoing is a message in a push, in both APIs.
type outgoing struct {
	Dst     Peer   `json:"dst"`
	Topic   []byte `json:"topic,omitempty"` // base64, as Go writes bytes
	Payload []byte `json:"payload"`
}

func newOutgoing(dst Peer, topic string, payload []byte) (outgoing, error) {
	if (dst.IP == "") == (dst.PK == "") {
		return outgoing{}, fmt.Errorf("%w: a destination is an address or a key", ErrRefused)
	}
	if len(topic) > MaxTopic {
		return outgoing{}, fmt.Errorf("%w: its topic has %d bytes, at most %d are possible", ErrRefused, len(topic), MaxTopic)
	}
	if payload == nil {
		payload = []byte{} // the APIs refuse null
	}
	return outgoing{Dst: dst, Topic: []byte(topic), Payload: payload}, nil
}

// pushAnswer reads the answer to a push: the reply, or the id alone.
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

// info is the state of a pushed message, in an answer.
type info struct {
	State stateField `json:"state"`
}

func (i info) known() (State, error) {
	if i.State == "" {
		return "", errors.New("the answer says no state of the message")
	}
	return State(i.State), nil
}

// stateField is a word, or an object named by the word.
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
