package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"edda"
	"edda/node"
	"edda/server"
	"edda/stream"
	"edda/stream/kv"
	"edda/stream/wire"
)

const (
	// connectWithin bounds the wait for NATS, because a person waits.
	connectWithin = 3 * time.Second
	// sendWithin bounds the publish.
	sendWithin = 10 * time.Second
)

// sender holds the flags of edda send.
type sender struct {
	url, natsContext, tenant, data string
	noTenancy                      bool
	event                          edda.Event
	output                         outputFlag
}

func (t *terminal) sendCommand() *cobra.Command {
	s := sender{event: edda.Event{Kind: edda.KindEvent}}
	c := &cobra.Command{
		Use: "send Type.Event --id ID", Short: "Publish an event through NATS",
		Long: "Publish an event through NATS. A name with two dots or more is the full type of a CloudEvent.",
		Example: `  edda send Order.OrderPlaced --id O1 --data '{"order_id": "O1"}'
  edda send com.github.pull_request.opened --id 7 --data @pr.json`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			if err := s.read(t, a[0]); err != nil {
				return err
			}
			return t.send(cmd.Context(), s)
		},
	}
	f := c.Flags()
	f.StringVar(&s.event.AggregateID, "id", "", "id of the aggregate (required)")
	f.StringVar(&s.data, "data", "", "payload: JSON, @FILE, or - for standard input")
	f.StringVar(&s.tenant, "tenant", "", "tenant (EDDA_TENANT; "+node.DevTenant+")")
	f.BoolVar(&s.noTenancy, "no-tenancy", false, "subjects without tenants")
	f.StringVar(&s.event.ID, "event-id", "", "id of the event, for deduplication (default: a new one)")
	f.IntVar(&s.event.Version, "version", 0, "version of the event's schema")
	f.StringVar(&s.event.Correlation, "correlation", "", "correlation id")
	f.StringVar(&s.url, "nats", "", "URL of NATS (NATS_URL; "+nats.DefaultURL+")")
	f.StringVar(&s.natsContext, "nats-context", "", "context of the nats CLI (NATS_CONTEXT)")
	f.StringVar(&s.event.Why, "why", "", "the reason, for the audit")
	f.StringVar(&s.event.By, "by", "", "name for the audit (default: the calling user)")
	s.output.register(c)
	return c
}

// read completes the event from the command line.
func (s *sender) read(t *terminal, name string) error {
	named := edda.NamedEvent(name)
	if named.FullType != "" && named.Version == 0 && s.event.Version > 0 { // which only the type of a CloudEvent says
		named = edda.NamedEvent(fmt.Sprintf("%s.v%d", name, s.event.Version))
	}
	s.event.AggregateType, s.event.Type, s.event.FullType = named.AggregateType, named.Type, named.FullType
	if named.Version > 0 && s.event.Version > 0 && named.Version != s.event.Version {
		return usagef("%q is version %d, and --version says %d", name, named.Version, s.event.Version)
	}
	s.event.Version = cmp.Or(named.Version, s.event.Version)
	if words := strings.Split(name, "."); len(words) < 2 || slices.Contains(words, "") {
		return usagef("%q: want the aggregate's type and the event, as in Order.OrderPlaced, or the full type of a CloudEvent", name)
	}
	if s.event.AggregateID == "" {
		return usagef("name the aggregate with --id")
	}
	text, err := t.text("--data", s.data)
	if err != nil {
		return err
	}
	if s.event.Payload, err = jsonFlag(text); err != nil {
		return err
	}
	s.event.By, s.event.Why = cmp.Or(oneLine(s.event.By), t.getenv("USER"), osUser(), "unknown"), oneLine(s.event.Why)
	if s.event.ID == "" {
		s.event.ID = ulid.Make().String()
	}
	if s.event.FullType != "" && !strings.Contains(s.event.ID, " ") { // an id with a space names its source
		s.event.ID = wire.CloudEventID("edda", s.event.ID)
	}
	s.event.Timestamp = time.Now().UTC()
	if s.noTenancy {
		return nil
	}
	for _, tenant := range []string{s.tenant, t.getenv("EDDA_TENANT"), node.DevTenant} {
		if s.event.Tenant = tenant; tenant != "" {
			break
		}
	}
	return nil
}

func (t *terminal) send(ctx context.Context, s sender) error {
	conn, js, err := connectNow(ctx, kv.Connection{URL: s.url, Context: s.natsContext, Name: "edda send"}.FromEnv(t.getenv))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	codec := wire.Codec{Grammar: wire.Grammar{NoTenancy: s.noTenancy}, MaxPayload: int(conn.MaxPayload())}
	stored, err := node.Publish(ctx, stream.NewPublisher(js, codec), s.event)
	if err != nil {
		return unsent(ctx, js, s.event.ID, err)
	}
	return t.printStored(s, stored)
}

// duplicateInProcess is the JetStream error for a message that was sent before, and that no quorum has yet.
const duplicateInProcess = 10158

// unsent explains why no stream has answered. A stream without a leader answers as little as one that does not exist.
func unsent(ctx context.Context, js jetstream.JetStream, id string, err error) error {
	nobody := errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders)
	var refused *jetstream.APIError
	pending := errors.As(err, &refused) && refused.ErrorCode == duplicateInProcess
	if !nobody && !pending && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	s, look := js.Stream(ctx, wire.AggregateEvents)
	led := look == nil && (s.CachedInfo().Cluster == nil || s.CachedInfo().Cluster.Leader != "")
	if errors.Is(look, jetstream.ErrStreamNotFound) || nobody && led { // it does not take the subject
		return fmt.Errorf("no stream takes the event: start Edda once, it makes the stream %s", wire.AggregateEvents)
	}
	return fmt.Errorf("the stream %s does not answer, perhaps for want of a leader (%w): see whether most NATS servers run, then send again with --event-id %q", wire.AggregateEvents, err, id)
}

func (t *terminal) printStored(s sender, stored server.Stored) error {
	switch s.output {
	case outputJSON:
		return json.NewEncoder(t.out).Encode(server.PublishedView{ID: s.event.ID, Stored: stored})
	case outputIDs:
		_, err := fmt.Fprintln(t.out, s.event.ID)
		return err
	}
	again := ""
	if stored.Duplicate {
		again = ", which was there already"
	}
	_, err := fmt.Fprintf(t.out, "%s  %s #%d  event %s%s\n", stored.Subject, stored.Stream, stored.Seq, s.event.ID, again)
	return err
}

// connectNow connects to NATS within connectWithin.
func connectNow(ctx context.Context, c kv.Connection) (*nats.Conn, jetstream.JetStream, error) {
	conn, js, err := kv.Connect(c)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	if err := conn.FlushWithContext(ctx); err != nil || conn.Status() != nats.CONNECTED {
		where := c.URL
		if where == "" {
			where = nats.DefaultURL
		}
		conn.Close()
		return nil, nil, fmt.Errorf("no NATS answers at %s: start one with edda dev PATH, or name it with --nats or NATS_URL", where)
	}
	return conn, js, nil
}
