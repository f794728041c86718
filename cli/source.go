package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"edda"
	"edda/engine"
	"edda/manifests"
	"edda/saga"
	"edda/server"
	"edda/stream"
	"edda/stream/wire"
)

// maxLast bounds the messages that edda source test reads.
const maxLast = 1000

func (t *terminal) sourceCommand() *cobra.Command {
	noun := &cobra.Command{
		Use: "source", Short: "Read the streams of others", Args: noun, RunE: help,
		Long: `A source reads a JetStream stream that exists, and says how an event is read from
its messages. Nothing in the stream is changed. The configuration file lists the
sources, below sources:.`,
	}
	noun.AddCommand(t.sourceTestCommand(), t.sourceAddCommand(), t.sourceListCommand(), t.sourceUnheardCommand())
	return noun
}

// sourceFile is the configuration file that the command reads: the named one, or edda.yaml if there is
// one.
func (t *terminal) sourceFile(file string) string {
	if file != "" || t.getenv(envConfig) != "" {
		return file
	}
	if _, err := os.Stat(manifests.ConfigFile); err == nil {
		return manifests.ConfigFile
	}
	return ""
}

// sourceTest holds the flags of edda source test.
type sourceTest struct {
	file   string
	last   int
	output outputFlag
}

func (t *terminal) sourceTestCommand() *cobra.Command {
	var s sourceTest
	c := &cobra.Command{
		Use: "test NAME", Short: "Show what becomes of the last messages of a source", Args: args(cobra.ExactArgs(1)),
		Long: `Read the last messages of a source's stream, and show the event that each becomes
and the instances that take it. Nothing is stored, published or changed. The exit
code is 1 if a message cannot be read.`,
		Example: "  edda source test orders --last 50",
		RunE:    func(cmd *cobra.Command, a []string) error { return t.testSource(cmd.Context(), a[0], s) },
	}
	c.Flags().StringVar(&s.file, "config", "", "configuration file ("+envConfig+"; "+manifests.ConfigFile+" if there is one)")
	c.Flags().IntVar(&s.last, "last", 20, "number of messages")
	s.output.register(c)
	c.ValidArgsFunction = first(func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		config, err := t.loadConfig(t.sourceFile(s.file), nil)
		if err != nil {
			return nil, noFiles
		}
		return slices.Sorted(maps.Keys(config.Sources)), noFiles
	})
	return c
}

func (t *terminal) testSource(ctx context.Context, name string, s sourceTest) error {
	if s.last < 1 || s.last > maxLast {
		return usagef("--last %d: want between 1 and %d", s.last, maxLast)
	}
	config, err := t.loadConfig(t.sourceFile(s.file), nil)
	if err != nil {
		return err
	}
	m, err := config.Mapping(name)
	if err != nil {
		return err
	}
	codec, err := config.Codec()
	if err != nil {
		return err
	}
	conn, js, err := connectNow(ctx, config.Connection().FromEnv(t.getenv))
	if err != nil {
		return err
	}
	defer conn.Close()
	messages, err := stream.Recent(ctx, js, m, s.last)
	if err != nil {
		return err
	}
	set, err := sagasIn(config.Manifests)
	if err != nil {
		return err
	}
	read := make([]readMessage, 0, len(messages))
	for _, one := range messages {
		for _, m := range codec.Split(one) {
			read = append(read, newReadMessage(m, codec.Event(m), set, config.Tenants))
		}
	}
	return t.printRead(m, read, s.output)
}

// sagasIn compiles the sagas of manifests; nil if there are none.
func sagasIn(paths []string) (*saga.Set, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	files, problems, err := manifests.ParseFiles(paths...)
	if err != nil {
		return nil, err
	}
	var programs []*saga.Program
	for _, m := range sagasOf(files) {
		if broken(m.File, problems) {
			continue
		}
		p, more := saga.Compile(m, saga.Options{})
		if problems = append(problems, more...); !more.Failed() {
			programs = append(programs, p)
		}
	}
	if problems.Failed() {
		return nil, fmt.Errorf("the manifests have errors: see edda lint %s", strings.Join(paths, " "))
	}
	return saga.NewSet(programs...)
}

// readMessage is what becomes of one message, or of one member of a batch.
type readMessage struct {
	Seq     uint64      `json:"seq"`
	Member  int         `json:"member,omitempty"` // its place in a batch of CloudEvents
	Subject string      `json:"subject"`
	Event   *edda.Event `json:"event,omitempty"` // nil if the message cannot be read
	Dead    string      `json:"dead,omitempty"`  // the reason of its dead letter
	Error   string      `json:"error,omitempty"`
	// Instances take the event, as saga and key. Without manifests nothing is known of them.
	Instances []string `json:"instances,omitempty"`
	Near      string   `json:"did_you_mean,omitempty"`

	fate string
}

// number is the sequence of the message, and behind a colon the member of a batch.
func (r *readMessage) number() string { return (&edda.Event{Seq: r.Seq, Member: r.Member}).Number() }

func newReadMessage(m wire.Message, ev edda.Event, set *saga.Set, served wire.Tenants) readMessage {
	r := readMessage{Seq: m.Seq, Member: m.Member, Subject: m.Subject}
	if !served.Match(ev.Tenant) {
		r.Event, r.fate = &ev, "nobody: the tenant "+ev.Tenant+" is not served here"
		return r
	}
	if ev.Malformed != "" {
		r.Dead, r.Error = ev.Malformed, ev.Error
		r.fate = "dead letter (" + ev.Malformed + ")"
		return r
	}
	r.Event = &ev
	if set == nil {
		return r
	}
	for _, target := range set.Route(ev) {
		if target.Dead != nil {
			r.Dead, r.Error = target.Dead.Reason, target.Dead.Error
			r.fate = "dead letter (" + r.Dead + ")"
			return r
		}
		r.Instances = append(r.Instances, target.Key.Saga+" "+target.Key.Correlation)
	}
	if r.fate = strings.Join(r.Instances, ", "); r.fate != "" {
		return r
	}
	r.fate = "no saga hears it"
	if near, suspicious := set.Unheard(ev); suspicious && near != "" {
		r.Near = near
		r.fate += "; did you mean " + near + "?"
	}
	return r
}

func (t *terminal) printRead(m *wire.Mapping, read []readMessage, output outputFlag) error {
	if output == outputJSON {
		if err := json.NewEncoder(t.out).Encode(read); err != nil {
			return err
		}
	} else {
		t.printReadRows(m, read)
	}
	if slices.ContainsFunc(read, func(r readMessage) bool { return r.Dead != "" }) {
		return &silentError{}
	}
	return nil
}

func (t *terminal) printReadRows(m *wire.Mapping, read []readMessage) {
	if len(read) == 0 {
		where := "has no messages"
		if subjects := m.Subjects(); len(subjects) > 0 {
			where = "has no messages on " + strings.Join(subjects, ", ")
		}
		fmt.Fprintf(t.out, "the stream %s %s yet: publish one, then look with edda source test %s\n", m.Stream(), where, m.Source())
		return
	}
	var lines [][]string
	dead := 0
	for _, r := range read {
		line := []string{r.number(), r.Subject, "", "", "", "", r.fate}
		if ev := r.Event; ev != nil {
			line[2], line[3], line[4], line[5] = ev.Name(), ev.AggregateID, ev.ID, ev.Tenant
		}
		if r.Dead != "" {
			dead++
		}
		lines = append(lines, line)
	}
	rows(t.out, []string{"seq", "subject", "type", "aggregate", "id", "tenant", "taken by"}, lines)
	messages := map[uint64]bool{}
	for _, r := range read {
		messages[r.Seq] = true
	}
	what := fmt.Sprintf("%d messages", len(messages))
	if len(messages) < len(read) {
		what = fmt.Sprintf("%d events in %s", len(read), what)
	}
	fmt.Fprintf(t.out, "%s of the stream %s; %d become dead letters\n", what, m.Stream(), dead)
	for _, text := range distinctErrors(read) {
		fmt.Fprintln(t.out, " ", printable(text))
	}
}

// distinctErrors lists each error once, with the first message that has it.
func distinctErrors(read []readMessage) (out []string) {
	seen := map[string]bool{}
	for _, r := range read {
		_, text, found := strings.Cut(r.Error, ": source ")
		if !found {
			text = r.Error
		}
		if r.Error != "" && !seen[text] {
			seen[text] = true
			out = append(out, fmt.Sprintf("%s: %s", r.number(), r.Error))
		}
	}
	return out
}

func (t *terminal) sourceListCommand() *cobra.Command {
	c := &client{term: t}
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the sources that a running Edda reads, and how far it is", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var info server.Info
			if _, err := c.get(cmd.Context(), "/info", &info); err != nil {
				return err
			}
			return sources().print(t, c.output, nil, sourcesOf(info))
		},
	}
	c.register(cmd)
	c.output.register(cmd)
	return cmd
}

// sourceRow is one source of a running Edda.
type sourceRow struct {
	Source   string `json:"source"`
	Stream   string `json:"stream"`
	Messages uint64 `json:"messages"`
	Last     uint64 `json:"last"`
	Position uint64 `json:"position"`
}

func sourcesOf(info server.Info) []sourceRow {
	list := []sourceRow{}
	for _, s := range info.Streams {
		if s.Source == "" {
			continue
		}
		one := sourceRow{Source: s.Source, Stream: s.Stream, Messages: s.Messages, Last: s.Last}
		for _, p := range info.Positions {
			if p.Stream == s.Stream && p.Saga == "" {
				one.Position = p.Seq
			}
		}
		list = append(list, one)
	}
	return list
}

func sources() listing[sourceRow] {
	number := func(of func(sourceRow) uint64) func(sourceRow) string {
		return func(s sourceRow) string { return strconv.FormatUint(of(s), 10) }
	}
	return listing[sourceRow]{
		id: func(s sourceRow) string { return s.Source },
		columns: []column[sourceRow]{
			{"source", func(s sourceRow) string { return s.Source }},
			{"stream", func(s sourceRow) string { return s.Stream }},
			{"messages", number(func(s sourceRow) uint64 { return s.Messages })},
			{"last", number(func(s sourceRow) uint64 { return s.Last })},
			{"position", number(func(s sourceRow) uint64 { return s.Position })},
		},
	}
}

func (t *terminal) sourceUnheardCommand() *cobra.Command {
	c := &client{term: t}
	cmd := &cobra.Command{
		Use: "unheard", Short: "List the types of events that no saga handles", Args: args(cobra.NoArgs),
		Long: `List the types of events that a running Edda has read since its start and that no
saga handles, of all streams. A type close to a trigger is probably a typo.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var info server.Info
			if _, err := c.get(cmd.Context(), "/info", &info); err != nil {
				return err
			}
			return unheards().print(t, c.output, nil, append([]engine.Unheard{}, info.Unheard...))
		},
	}
	c.register(cmd)
	c.output.register(cmd)
	return cmd
}

func unheards() listing[engine.Unheard] {
	return listing[engine.Unheard]{
		id: func(u engine.Unheard) string { return u.Type },
		columns: []column[engine.Unheard]{
			{"type", func(u engine.Unheard) string { return u.Type }},
			{"count", func(u engine.Unheard) string { return strconv.FormatUint(u.Count, 10) }},
			{"stream", func(u engine.Unheard) string { return u.Stream }},
			{"last", func(u engine.Unheard) string { return edda.FormatTime(u.Last) }},
			{"did you mean", func(u engine.Unheard) string { return u.Near }},
		},
	}
}
