package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/effects"
	"edda/stream/wire"
)

const (
	// DefaultAckWait is three heartbeats, so that two may get lost.
	DefaultAckWait = 3 * effects.Heartbeat
	// defaultMaxPending bounds the unacknowledged commands of one effect, over all workers. Delayed
	// (naked) messages count too. With a lower bound the commands of one tenant that wait for its
	// limit would block those of other tenants. The server needs some 100 B for each.
	defaultMaxPending = 1 << 16
)

// CommandsOptions configure a source of commands. The zero value works.
type CommandsOptions struct {
	wire.Codec
	Tenants    wire.Tenants
	MaxPending int // 65,536 when zero
	// AckWait is the time after which the server gives the command of a silent worker to another
	// one; 30 s when zero. With less than three heartbeats it does so for running commands, and the
	// ledger prevents a second call.
	AckWait time.Duration
	// Shard has the keys whose commands are read. The consumers of a shard are its own, so that each reads all commands.
	// A command of no instance is that of the key without a saga.
	Shard edda.Shard
	// Sole says that no other process reads these commands. Commands that an earlier run did not
	// settle then come at once, and not after AckWait.
	Sole bool
	// Strays counts ignored acks; nil does not count.
	Strays *Strays
}

// Commands reads effect commands. Each effect has one durable consumer, which all workers for the
// same tenants share. It is an effects.Source.
type Commands struct {
	js jetstream.JetStream
	o  CommandsOptions

	mu        sync.Mutex // guards both maps
	consumers map[string]jetstream.Consumer
	reclaimed map[string]bool // effects whose unsettled commands were requested again
}

var _ effects.Source = (*Commands)(nil)

// NewCommands makes a source of commands. The stream must exist.
func NewCommands(js jetstream.JetStream, o CommandsOptions) *Commands {
	if o.Strays == nil {
		o.Strays = &Strays{}
	}
	return &Commands{js: js, o: o, consumers: map[string]jetstream.Consumer{}, reclaimed: map[string]bool{}}
}

// Fetch returns up to max waiting commands of one effect.
func (c *Commands) Fetch(ctx context.Context, effect string, max int, wait time.Duration) ([]effects.Delivery, error) {
	cons, err := c.consumer(ctx, effect)
	if err != nil {
		return nil, err
	}
	out, err := c.fetch(ctx, cons, max, wait)
	if err != nil {
		c.forget(effect)
		return out, fmt.Errorf("fetch commands of %s: %w", effect, err)
	}
	return out, nil
}

// fetch returns what is there. If there is nothing, it waits for the first command and returns
// those that came with it. It returns the commands that it has also with an error.
func (c *Commands) fetch(ctx context.Context, cons jetstream.Consumer, max int, wait time.Duration) ([]effects.Delivery, error) {
	out, err := c.fetchNoWait(cons, max)
	if err != nil || len(out) > 0 {
		return out, err
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	batch, err := cons.Fetch(1, jetstream.FetchContext(waiting))
	if err != nil {
		return nil, ignoreTimeout(err)
	}
	first, err := c.collect(batch)
	if err != nil || len(first) == 0 || max == 1 {
		return first, err
	}
	rest, err := c.fetchNoWait(cons, max-1)
	return append(first, rest...), err
}

func (c *Commands) fetchNoWait(cons jetstream.Consumer, max int) ([]effects.Delivery, error) {
	batch, err := cons.FetchNoWait(max)
	if err != nil {
		return nil, ignoreTimeout(err)
	}
	return c.collect(batch)
}

func (c *Commands) collect(batch jetstream.MessageBatch) ([]effects.Delivery, error) {
	var out []effects.Delivery
	for m := range batch.Messages() {
		d, err := c.delivery(m)
		if err != nil {
			return out, err
		}
		if d == nil {
			continue
		}
		out = append(out, d)
	}
	if len(out) > 0 {
		return out, nil // a lasting error comes again at the next fetch
	}
	return out, ignoreTimeout(batch.Error())
}

// ignoreTimeout returns nil for the end of the wait.
func ignoreTimeout(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// delivery returns nil for a stray ack and for a command of a tenant or a shard that is not served here. It
// acknowledges both: the others have consumers of their own.
func (c *Commands) delivery(m jetstream.Msg) (effects.Delivery, error) {
	md, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	msg := wire.Message{
		Subject: m.Subject(), Header: m.Headers(), Data: m.Data(),
		Stream: md.Stream, Seq: md.Sequence.Stream, Time: md.Timestamp,
	}
	if c.o.Strays.drop(msg) {
		return nil, m.Ack()
	}
	cmd := c.o.Command(msg)
	if !c.o.NoTenancy && !c.o.Tenants.Match(cmd.Tenant) || !c.o.Shard.Whole() && !c.o.Shard.Has(wire.KeyOf(cmd)) {
		return nil, m.Ack()
	}
	return &delivery{msg: m, command: cmd}, nil
}

func (c *Commands) consumer(ctx context.Context, effect string) (jetstream.Consumer, error) {
	c.mu.Lock()
	cons := c.consumers[effect]
	c.mu.Unlock()
	if cons != nil {
		return cons, nil
	}
	cons, err := c.js.CreateOrUpdateConsumer(ctx, wire.WorkflowCommands, c.config(effect))
	if err != nil {
		return nil, fmt.Errorf("consumer for commands of %s: %w", effect, err)
	}
	if err := c.reclaim(ctx, effect, cons); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.consumers[effect] = cons
	c.mu.Unlock()
	return cons, nil
}

// reclaim makes the server redeliver, once, what an earlier run of the sole worker did not settle.
// A killed process sends no naks, and AckWait is long. Commands that were settled out of order come
// again, too; the ledger knows them.
func (c *Commands) reclaim(ctx context.Context, effect string, cons jetstream.Consumer) error {
	c.mu.Lock()
	done := c.reclaimed[effect]
	c.reclaimed[effect] = true
	c.mu.Unlock()
	if info := cons.CachedInfo(); done || !c.o.Sole || info.NumAckPending == 0 {
		return nil
	}
	if _, err := c.js.ResetConsumer(ctx, wire.WorkflowCommands, cons.CachedInfo().Name); err != nil {
		c.mu.Lock()
		c.reclaimed[effect] = false
		c.mu.Unlock()
		return fmt.Errorf("take over the commands of %s: %w", effect, err)
	}
	return nil
}

// forget makes the next fetch look up the consumer again.
func (c *Commands) forget(effect string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.consumers, effect)
}

func (c *Commands) config(effect string) jetstream.ConsumerConfig {
	tenants := strings.Join(slices.Compact(slices.Sorted(slices.Values(c.o.Tenants))), "\x00")
	distinct := []string{tenants}
	if !c.o.Shard.Whole() {
		distinct = append(distinct, fmt.Sprintf("%d/%d", c.o.Shard.Index, c.o.Shard.Of))
	}
	cfg := jetstream.ConsumerConfig{
		Durable: wire.ConsumerName("effect", effect, distinct...), Description: "edda: commands of effect " + effect,
		DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: c.o.AckWait, MaxDeliver: -1, MaxAckPending: c.o.MaxPending,
		FilterSubjects: c.o.Filters(c.o.Tenants, effect, wire.FamilyEffect),
	}
	if cfg.AckWait == 0 {
		cfg.AckWait = DefaultAckWait
	}
	if cfg.MaxAckPending == 0 {
		cfg.MaxAckPending = defaultMaxPending
	}
	return cfg
}

// delivery is one delivered command.
type delivery struct {
	msg     jetstream.Msg
	command effects.Command
}

func (d *delivery) Command() *effects.Command { return &d.command }

func (d *delivery) InProgress(context.Context) error { return settled(d.msg.InProgress()) }

func (d *delivery) Ack(context.Context) error { return settled(d.msg.Ack()) }

func (d *delivery) Nak(_ context.Context, delay time.Duration) error {
	return settled(d.msg.NakWithDelay(delay))
}

// settled ignores that a message was settled before.
func settled(err error) error {
	if err == nil || errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		return nil
	}
	return fmt.Errorf("settle command: %w", err)
}
