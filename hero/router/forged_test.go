package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda/hero"
	"edda/hero/mycelium"
	"edda/internal/testkit"
)

// Context 5 belongs to actor 99, who has no right in context 1.
func TestAResultForgedInAnotherContextSettlesNothing(t *testing.T) {
	t.Parallel()
	claim := hero.Message{ID: 7, CallerID: 99, ContextID: 5, Origin: "1/job:12:2001", Job: []hero.Job{job(2001)}}
	lie := job(2001)
	lie.CallerID, lie.Status, lie.Result = 12, hero.JobFinished, map[string]string{"output": "a lie"}
	for name, forge := range map[string]func(*bed) hero.Message{
		"by an origin in msg_out": func(b *bed) hero.Message { return b.send(claim) },
		"by an origin in msg_in":  func(b *bed) hero.Message { return b.arrive(5, hero.MsgIn, claim) },
		"by a result": func(b *bed) hero.Message {
			return b.send(hero.Message{ID: 7, CallerID: 99, ContextID: 5, MessageType: hero.MessageResult, TargetContext: 1, ReplyTo: "job:12:2001", Job: []hero.Job{lie}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.must(b.db.PutContext(t.Context(), hero.Context{ID: 5, Admins: []uint32{99}}))
			b.runner(hero.Runner{ID: 20, Local: true}, 1)
			b.runner(hero.Runner{ID: 21, Local: true}, 5)
			b.localRunner(1, func(string) {}) // its job never ends
			b.localRunner(5, func(key string) { b.writeEnd(5, key) })
			b.start(Options{})
			m := b.send(hero.Message{Job: []hero.Job{job(2001)}})
			testkit.Until(t, 20*time.Second, "acknowledged", func() bool { return b.message(m).Status == hero.MessageAcknowledged })
			b.ended(forge(b))
			b.idle(5)
			if got := b.message(m); got.Status.Ended() {
				t.Errorf("%s is %s", m.Key(), got.Status)
			}
			if got := b.job(1, 12, 2001); got.Status.Ended() {
				t.Errorf("the job is %s: %v", got.Status, got.Result)
			}
			if got := b.inbox(1); len(got) != 0 {
				t.Errorf("msg_in holds %+v", got)
			}
		})
	}
}

func TestAResultFromAnotherContextOfTheRightNodeIsRefused(t *testing.T) {
	w, _ := newWorld(t)
	j := job(2001)
	j.ContextID = 9
	m := w.a.send(hero.Message{To: 50, Job: []hero.Job{j}})
	testkit.Until(t, 20*time.Second, "the job is there", func() bool { return w.a.message(m).Status == hero.MessageAcknowledged })
	r, err := New(w.a.db, quick(Options{}))
	w.a.must(err)
	receiver, err := r.Receiver()
	w.a.must(err)
	deliver := func(from int) string {
		request := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"message.deliver","params":[{"origin":"%d/message:50:7","message":{"id":7,"caller_id":50,"target_context":1,"created_at":5,
			"message_type":"result","message":"done","reply_to":"%s"}}]}`, from, m.Key())
		return string(receiver.HandleMessage(t.Context(), mycelium.Message{SrcPK: w.keyB, Payload: []byte(request)}))
	}
	if got := deliver(2); !strings.Contains(got, "answers no message") || w.a.message(m).Status.Ended() {
		t.Errorf("%s, and the message is %s", got, w.a.message(m).Status)
	}
	if got := deliver(9); !strings.Contains(got, `"result":true`) || !w.a.message(m).Status.Ended() {
		t.Errorf("%s, and the message is %s", got, w.a.message(m).Status)
	}
}

func TestAMessageIntoAContextWhereTheCallerHasNoRight(t *testing.T) {
	b := newBed(t)
	b.must(b.db.PutContext(t.Context(), hero.Context{ID: 3, Admins: []uint32{99}, Readers: []uint32{13}}))
	b.start(Options{})
	chat := hero.Message{MessageType: hero.MessageChat, To: 99, TargetContext: 3}
	if got := b.end(b.send(chat), hero.MessageError); !strings.Contains(said(got), deniedPrefix) {
		t.Errorf("logs %q", said(got))
	}
	if got := b.inbox(3); len(got) != 0 {
		t.Errorf("msg_in holds %+v", got)
	}
	chat.CallerID = 13
	b.end(b.send(chat), hero.MessageProcessed)
	b.pop(3)
}

// spy counts the scripts on msg_in, and can lose an answer.
type spy struct {
	mu    sync.Mutex // guards the fields below
	looks []time.Time
	lose  bool // the next answer with a key
}

func (s *spy) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *spy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (s *spy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); len(args) < 5 || args[3] != hero.MsgIn || args[4] != msgInCoordinator {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.looks = append(s.looks, time.Now())
		if c, ok := cmd.(*redis.Cmd); ok && s.lose {
			answer, _ := c.Slice()
			if len(answer) == 3 && answer[0] != "" {
				s.lose = false
				cmd.SetErr(errors.New("the connection broke"))
				return cmd.Err()
			}
		}
		return err
	}
}

func TestAJobWhoseMoveOutOfMsgInWasNotHeardOfRuns(t *testing.T) {
	b, s := newBed(t), &spy{lose: true}
	b.raw(1).AddHook(s)
	runs := b.localRunner(1, func(key string) { b.writeEnd(1, key) })
	b.start(Options{})
	b.end(b.arrive(1, hero.MsgIn, hero.Message{ID: 101, CallerID: 13, Job: []hero.Job{job(2001)}}), hero.MessageProcessed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lose || runs() != 1 {
		t.Errorf("an answer is to be lost: %v; %d runs", s.lose, runs())
	}
}

func TestAnIdleMsgInIsPolledLessAndLessOften(t *testing.T) {
	b, s := newBed(t), &spy{}
	b.raw(1).AddHook(s)
	b.start(Options{})
	testkit.Until(t, 20*time.Second, "a second between two looks", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		n := len(s.looks)
		return n > 4 && s.looks[n-1].Sub(s.looks[n-2]) >= inboundAtMost
	})
}

func TestTheJobOfARefusedMessageEndsWhereItIsTheCallersOwn(t *testing.T) {
	b := newBed(t)
	b.start(Options{})
	for i, tt := range []struct {
		owner uint32
		was   hero.JobStatus
		flow  uint32
		want  hero.JobStatus
	}{
		{14, hero.JobDispatched, 0, hero.JobError},
		{14, hero.JobStarted, 0, hero.JobStarted},
		{14, hero.JobDispatched, 33, hero.JobDispatched},
		{12, hero.JobDispatched, 0, hero.JobDispatched},
	} {
		j := job(2001 + uint32(i))
		j.CallerID, j.ContextID, j.Status, j.FlowID = tt.owner, 1, tt.was, tt.flow
		b.must(b.db.PutJob(t.Context(), j))
		b.end(b.send(hero.Message{ID: 101 + uint32(i), CallerID: 14, Job: []hero.Job{j}}), hero.MessageError)
		got := b.job(1, tt.owner, j.ID)
		if got.Status != tt.want || tt.want == hero.JobError && !strings.Contains(got.Result["error"], deniedPrefix) {
			t.Errorf("%d: %s is %s %v, want %s", i, j.Key(), got.Status, got.Result, tt.want)
		}
	}
}

func TestResultsDoNotGrowAMsgInThatNoActorPops(t *testing.T) {
	b := newBed(t)
	core, logs := observer.New(zap.WarnLevel)
	unread := slices.Repeat([]any{"x"}, maxResults)
	for _, context := range []uint32{1, 2} {
		for some := range slices.Chunk(unread, 1000) { // a busy machine takes seconds to send all in one command
			b.must(b.raw(context).LPush(t.Context(), hero.MsgIn, some...).Err())
		}
	}
	b.localRunner(2, func(key string) { b.writeEnd(2, key) })
	b.runner(hero.Runner{ID: 20, Local: true}, 2)
	b.start(Options{Log: zap.New(core)})
	stray := b.send(hero.Message{ID: 101, MessageType: hero.MessageResult, Message: "x"})
	first := b.send(hero.Message{ID: 102, ContextID: 2, Job: []hero.Job{job(2001)}})
	second := b.send(hero.Message{ID: 103, ContextID: 2, Job: []hero.Job{job(2002)}})
	for _, m := range []hero.Message{stray, first, second} {
		b.end(m, hero.MessageProcessed)
	}
	for _, context := range []uint32{1, 2} {
		if n := b.raw(context).LLen(t.Context(), hero.MsgIn).Val(); n != maxResults {
			t.Errorf("context %d: %d keys in msg_in", context, n)
		}
	}
	if n := logs.FilterMessageSnippet("msg_in is full").Len(); n != 2 {
		t.Errorf("said %d times, want once for each context", n)
	}
}

// A message of another node may name no actor without a public key, neither as its sender
// nor as the caller of its job.
func TestAnActorWithoutAPublicKeyIsNamedByARemote(t *testing.T) {
	b := newBed(t)
	key := strings.Repeat("ab", 32)
	for id, pk := range map[uint32]string{12: key, 13: "", 14: key} {
		b.must(b.db.PutActor(t.Context(), hero.Actor{ID: id, PubKey: pk}))
	}
	r, err := New(b.db, quick(Options{}))
	b.must(err)
	receiver, err := r.Receiver()
	b.must(err)
	for n, tt := range []struct {
		sender, caller int
		want           string
	}{{13, 13, "actor 13 has no public key here"}, {12, 13, "job 1 is of actor 13"}, {12, 77, "job 1 is of actor 77"}, {12, 14, `"result":true`}, {12, 12, `"result":true`}} {
		request := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"message.deliver","params":[{"origin":"9/message:%d:%d","message":{"id":%d,"caller_id":%d,"target_context":1,"created_at":5,
			"message_type":"job","message":"","job":[{"id":1,"caller_id":%d,"script":"x","script_type":"v"}]}}]}`, tt.sender, 50+n, 50+n, tt.sender, tt.caller)
		for _, from := range []string{key, ""} {
			got := string(receiver.HandleMessage(t.Context(), mycelium.Message{SrcPK: from, Payload: []byte(request)}))
			if want := tt.want; from != "" && !strings.Contains(got, want) || from == "" && !strings.Contains(got, "no public key") {
				t.Errorf("%d from %q: %s, want %s", n, from, got, want)
			}
		}
	}
}
