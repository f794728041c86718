package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"edda/manifests"
	"edda/node"
	"edda/stream"
	"edda/stream/wire"
)

// sourceAdd holds the flags of edda source add.
type sourceAdd struct {
	file, from string
	subjects   []string
	options    wire.MappingOptions
	last       int
	yes        bool
}

func (t *terminal) sourceAddCommand() *cobra.Command {
	s := sourceAdd{last: 100}
	c := &cobra.Command{
		Use: "add NAME --stream STREAM", Short: "Write a source into the configuration, from the messages of its stream", Args: args(cobra.ExactArgs(1)),
		Long: `Look at the last messages of a JetStream stream, propose how events are read from
them, show the result, and write the source into the configuration file after
asking. Flags replace what is proposed.`,
		Example: "  edda source add orders --stream ORDERS\n  edda source add orders --stream ORDERS --type =tokens[1] --id =body.event_id --yes",
		RunE:    func(cmd *cobra.Command, a []string) error { return t.addSource(cmd.Context(), a[0], s) },
	}
	f := c.Flags()
	f.StringVar(&s.file, "config", "", "configuration file ("+envConfig+"; "+manifests.ConfigFile+")")
	f.StringVar(&s.options.Stream, "stream", "", "the stream; without it the streams are listed")
	f.StringSliceVar(&s.subjects, "subjects", nil, "only messages with these subjects")
	f.StringVar(&s.from, "from", "", "where to begin: now or all")
	f.StringVar(&s.options.ID, "id", "", "id of the event in the stream, such as =body.event_id")
	f.StringVar(&s.options.Type, "type", "", "type of the event, such as =tokens[1]")
	f.StringVar(&s.options.AggregateType, "aggregate-type", "", "type of the aggregate")
	f.StringVar(&s.options.AggregateID, "aggregate-id", "", "id of the aggregate")
	f.StringVar(&s.options.Tenant, "tenant", "", "tenant")
	f.StringVar(&s.options.Time, "time", "", "when the producer says it happened")
	f.StringVar(&s.options.Correlation, "correlation-id", "", "correlation id")
	f.StringVar(&s.options.Data, "data", "", "payload, such as =body.data")
	f.BoolVarP(&s.yes, "yes", "y", false, "do not ask")
	offer(c, "from", []string{string(stream.FromNow), string(stream.FromAll)})
	return c
}

func (t *terminal) addSource(ctx context.Context, name string, s sourceAdd) error {
	file := t.sourceFile(s.file)
	config, err := t.loadConfig(file, nil)
	if err != nil {
		return err
	}
	if file == "" {
		if file = t.getenv(envConfig); file == "" {
			file = manifests.ConfigFile
		}
	}
	if _, exists := config.Sources[name]; exists {
		return usagef("%s has a source %s already: edit it there, and look at it with edda source test %s", file, name, name)
	}
	conn, js, err := connectNow(ctx, config.Connection().FromEnv(t.getenv))
	if err != nil {
		return err
	}
	defer conn.Close()
	if s.options.Stream == "" {
		return streamsToChoose(ctx, js)
	}
	s.options.Source, s.options.Subjects = name, s.subjects
	plain, err := wire.NewMapping(wire.MappingOptions{Source: name, Stream: s.options.Stream, Subjects: s.subjects})
	if err != nil {
		return usagef("%w", err)
	}
	messages, err := stream.Recent(ctx, js, plain, s.last)
	if err != nil {
		return err
	}
	if len(messages) == 0 && s.options.Type == "" {
		return fmt.Errorf("the stream %s has no messages yet to look at: publish one and run this again, or say how to read them, such as --type =tokens[1]", s.options.Stream)
	}
	s.options = s.options.Or(wire.Guess(messages))
	block := sourceBlock(name, s.options, s.from)
	text, err := withSource(file, block)
	if err != nil {
		return err
	}
	changed, err := t.loadSources(node.Sources{File: file, Text: text})
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "sources:\n%s\n", block)
	if err := t.previewSource(changed, name, messages); err != nil {
		return err
	}
	if s.from == "" && len(messages) > 0 {
		fmt.Fprintln(t.out, "it begins with the messages that come after its first start; --from all reads those above, too")
	}
	if !s.yes {
		if err := t.agree(fmt.Sprintf("write this source into %s?", file)); err != nil {
			return err
		}
	}
	if now, err := withSource(file, block); err != nil || !bytes.Equal(now, text) {
		return errors.Join(err, fmt.Errorf("%s was changed meanwhile: run this again", file))
	}
	if err := replaceFile(file, text); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%s has the source %s: look at it again with edda source test %s, and start edda run --config %s\n", file, name, name, file)
	return nil
}

// previewSource shows what becomes of the messages with the changed configuration.
func (t *terminal) previewSource(config node.Config, name string, messages []wire.Message) error {
	m, err := config.Mapping(name)
	if err != nil {
		return err
	}
	codec, err := config.Codec()
	if err != nil {
		return err
	}
	set, err := sagasIn(config.Manifests)
	if err != nil {
		return err
	}
	var read []readMessage
	for _, one := range messages[max(0, len(messages)-previewed):] {
		for _, m := range codec.Split(one) {
			read = append(read, newReadMessage(m, codec.Event(m), set, config.Tenants))
		}
	}
	t.printReadRows(m, read)
	return nil
}

// previewed bounds the messages that edda source add shows.
const previewed = 10

// streamsToChoose is the error of a missing --stream, with the streams there are.
func streamsToChoose(ctx context.Context, js jetstream.JetStream) error {
	names := js.StreamNames(ctx)
	var found []string
	for name := range names.Name() {
		if own := []string{wire.AggregateEvents, wire.WorkflowCommands, wire.WorkflowEvents}; !slices.Contains(own, name) && !strings.HasPrefix(name, "KV_") && !strings.HasPrefix(name, "OBJ_") {
			found = append(found, name)
		}
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("list the streams: %w", err)
	}
	if len(found) == 0 {
		return usagef("there is no stream to read: a source reads a JetStream stream that exists, such as one of: nats stream add ORDERS --subjects 'orders.>'")
	}
	slices.Sort(found)
	return usagef("name the stream with --stream: there are %s", strings.Join(found, ", "))
}

// sourceBlock is the source as YAML, indented for sources:.
func sourceBlock(name string, o wire.MappingOptions, from string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s:\n    stream: %s\n", name, quoted(o.Stream))
	if len(o.Subjects) > 0 {
		var subjects []string
		for _, subject := range o.Subjects {
			subjects = append(subjects, quoted(subject))
		}
		fmt.Fprintf(&b, "    subjects: [%s]\n", strings.Join(subjects, ", "))
	}
	for _, f := range [][2]string{{"from", from}, {"id", o.ID}, {"type", o.Type}} {
		if f[1] != "" {
			fmt.Fprintf(&b, "    %s: %s\n", f[0], quoted(f[1]))
		}
	}
	if o.AggregateType != "" || o.AggregateID != "" {
		var members []string
		for _, f := range [][2]string{{"type", o.AggregateType}, {"id", o.AggregateID}} {
			if f[1] != "" {
				members = append(members, f[0]+": "+quoted(f[1]))
			}
		}
		fmt.Fprintf(&b, "    aggregate: {%s}\n", strings.Join(members, ", "))
	}
	for _, f := range [][2]string{{"tenant", o.Tenant}, {"time", o.Time}, {"correlation_id", o.Correlation}, {"data", o.Data}} {
		if f[1] != "" {
			fmt.Fprintf(&b, "    %s: %s\n", f[0], quoted(f[1]))
		}
	}
	return b.String()
}

// plainWord is a text that YAML reads as it is, but for words such as true.
var plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// quoted writes a text as a YAML scalar: plain if it is a word, else in double quotes.
func quoted(text string) string {
	if plainWord.MatchString(text) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(text)) {
		return text
	}
	return strconv.Quote(text)
}

// withSource returns the text of the configuration file with the block below sources:. A file that does
// not exist is empty.
func withSource(file, block string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	lines := strings.SplitAfter(string(text), "\n")
	for i, line := range lines {
		rest, found := strings.CutPrefix(line, "sources:")
		if !found {
			continue
		}
		value, comment, _ := strings.Cut(rest, "#")
		switch strings.TrimSpace(value) {
		case "", "{}", "~", "null":
		default:
			return nil, fmt.Errorf("%s: sources: is written on one line: break it into lines, then run this again", file)
		}
		if comment != "" {
			comment = " #" + strings.TrimRight(comment, "\r\n")
		}
		lines[i] = "sources:" + comment + "\n" + reindented(block, indentOf(lines[i+1:]))
		return []byte(strings.Join(lines, "")), nil
	}
	before := string(text)
	if before != "" {
		before = strings.TrimRight(before, "\n") + "\n\n"
	}
	return []byte(before + "sources:\n" + block), nil
}

// indentOf returns the blanks before the first member of a block, two if there is none.
func indentOf(lines []string) string {
	for _, line := range lines {
		text := strings.TrimLeft(line, " ")
		if text = strings.TrimSpace(text); text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		if n := len(line) - len(strings.TrimLeft(line, " ")); n > 0 {
			return line[:n]
		}
		break
	}
	return "  "
}

// reindented replaces the first two blanks of each line of a block by an indent.
func reindented(block, indent string) string {
	var b strings.Builder
	for line := range strings.Lines(block) {
		b.WriteString(indent + strings.TrimPrefix(line, "  "))
	}
	return b.String()
}
