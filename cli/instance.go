package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"edda"
	"edda/engine"
	"edda/internal/jsonvalue"
	"edda/server"
)

func (t *terminal) instanceCommand() *cobra.Command {
	c := &client{term: t}
	noun := &cobra.Command{
		Use: "instance", SuggestFor: []string{"list", "ps"}, Aliases: []string{"i"}, Short: "Show instances, and send them signals, answers and commands",
		Args: noun, RunE: help,
	}
	c.register(noun)
	onlyWords(noun, "ca", "cert", "key", "token-file")
	noun.AddCommand(c.instanceList(), c.instanceDescribe(), c.instanceHistory(),
		c.waitingList("held", "List keys that a poison event holds, and what each waits for"),
		c.waitingList("parked", "List keys whose events wait for their instance to begin"),
		c.signalCommand(), c.answerCommand(),
		c.verbCommand(edda.VerbCancel, "Fail it as cancelled, and undo its finished steps", true),
		c.verbCommand(edda.VerbTerminate, "End it now, without undo", true),
		c.stepCommand(edda.VerbRetry, "Call a failed step or undo again", false),
		c.stepCommand(edda.VerbSkip, "Continue without a failed step or undo", true))
	return noun
}

// lsCommand is edda instance list under the name that people try first.
func (t *terminal) lsCommand() *cobra.Command {
	c := &client{term: t}
	cmd := c.instanceList()
	cmd.Use, cmd.Aliases, cmd.Short = "ls", nil, "List instances, as edda instance list"
	c.register(cmd)
	onlyWords(cmd, "ca", "cert", "key", "token-file")
	return cmd
}

func (c *client) instanceList() *cobra.Command {
	var saga, status string
	var p paging
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List instances", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if status != "" && !slices.Contains(statuses(), status) {
				return usagef("--status %s: want one of %s", status, strings.Join(statuses(), ", "))
			}
			if err := page(p.limit); err != nil {
				return err
			}
			var found server.InstanceList
			raw, err := c.get(cmd.Context(), "/v1/instances?"+p.query(map[string]string{"saga": saga, "status": status}), &found)
			if err != nil {
				return err
			}
			for _, b := range found.Behind {
				if c.output != outputJSON {
					fmt.Fprintln(c.term.err, behindLine(b))
				}
			}
			if len(found.Instances) == 0 {
				if err := c.noSaga(cmd.Context(), saga, nil); err != nil {
					return err
				}
			}
			defer c.term.more("more", found.Next)
			return instances().print(c.term, c.output, raw, found.Instances)
		},
	}
	cmd.Flags().StringVar(&saga, "saga", "", "only this saga")
	cmd.Flags().StringVar(&status, "status", "", "only running, undoing, stuck, done, failed, undone, or held by a poison event")
	p.register(cmd, "next page")
	offer(cmd, "status", statuses())
	offerBy(cmd, "saga", c.completeSagas)
	c.output.register(cmd)
	return cmd
}

func statuses() []string {
	return []string{"running", "undoing", "stuck", "done", "failed", "undone", "held"}
}

func instances() listing[server.InstanceSummary] {
	return listing[server.InstanceSummary]{
		id: func(i server.InstanceSummary) string { return i.Saga + " " + i.Key },
		columns: []column[server.InstanceSummary]{
			{"saga", func(i server.InstanceSummary) string { return i.Saga }},
			{"key", func(i server.InstanceSummary) string { return i.Key }},
			{"status", func(i server.InstanceSummary) string { return string(i.Status) }},
			{"version", func(i server.InstanceSummary) string { return i.VersionName }},
			{"updated", func(i server.InstanceSummary) string { return ago(i.Updated) }},
			{"remark", func(i server.InstanceSummary) string { return brief(remark(i)) }},
		},
	}
}

// behindLine describes how far a saga is behind the streams.
func behindLine(b server.SagaBehind) string {
	line := b.Saga
	if b.Tenant != "" && b.Tenant != engine.AllTenants {
		line += " of " + b.Tenant
	}
	switch {
	case b.Paused != "":
		line += fmt.Sprintf(": paused, %s has no room for more of its work; %s", b.Paused, many(b.Left, "message waits", "messages wait"))
	case b.Problem != "":
		line += fmt.Sprintf(": behind by %s: %s", many(b.Left, "message", "messages"), b.Problem)
	default:
		line += fmt.Sprintf(": catching up, %s of %s messages", thousands(b.Done), thousands(b.Done+b.Left))
	}
	return printable(line)
}

// thousands formats a number in groups of three digits.
func thousands(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// many formats a number with its noun.
func many(n uint64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + more
}

// remark returns what an operator should notice first.
func remark(i server.InstanceSummary) string {
	var out []string
	if i.Reason != "" {
		out = append(out, i.Reason)
	}
	if i.Held != "" {
		out = append(out, "held")
	}
	switch {
	case i.Incidents == 1:
		out = append(out, "1 incident")
	case i.Incidents > 1:
		out = append(out, fmt.Sprintf("%d incidents", i.Incidents))
	}
	return strings.Join(out, ", ")
}

// ago formats a time relative to now. The other clock may be ahead of ours. A small
// difference is ignored; a large one is shown.
func ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := time.Since(t)
	switch {
	case d < -time.Minute:
		return clock(t)
	case d < 0:
		return "0s ago"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return t.Format(time.DateOnly)
}

func (c *client) instanceDescribe() *cobra.Command {
	cmd := &cobra.Command{
		Use: "describe SAGA KEY", Aliases: []string{"get", "info"}, Short: "Show one instance",
		Args: args(cobra.ExactArgs(2)), ValidArgsFunction: c.completeInstance,
		RunE: func(cmd *cobra.Command, a []string) error {
			var view server.InstanceView
			raw, err := c.get(cmd.Context(), instancePath(a), &view)
			if err != nil {
				return c.noSaga(cmd.Context(), a[0], err)
			}
			if c.output == outputJSON {
				return indented(c.term.out, raw)
			}
			return describeInstance(c.term.out, view)
		},
	}
	c.output.register(cmd)
	return cmd
}

func instancePath(a []string) string {
	return "/v1/instances/" + segment(a[0]) + "/" + segment(a[1])
}

func (c *client) instanceHistory() *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "history SAGA KEY", Short: "Show its events and their fates, newest first",
		Args: args(cobra.ExactArgs(2)), ValidArgsFunction: c.completeInstance,
		RunE: func(cmd *cobra.Command, a []string) error {
			if err := page(p.limit); err != nil {
				return err
			}
			var view server.HistoryView
			raw, err := c.get(cmd.Context(), instancePath(a)+"/history?"+p.query(nil), &view)
			if err != nil {
				return c.noSaga(cmd.Context(), a[0], err)
			}
			if c.output == outputJSON {
				return indented(c.term.out, raw)
			}
			printHistory(c.term.out, view.History)
			c.term.more("older", view.Next)
			return nil
		},
	}
	p.register(cmd, "older ones")
	c.output.register(cmd)
	return cmd
}

func (c *client) signalCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use: "signal SAGA KEY NAME", Short: "Send a signal", Example: `  edda instance signal order O1 hurry --data '{"by": "noon"}'`,
		Args: args(cobra.ExactArgs(3)), ValidArgsFunction: c.completeInstance,
		RunE: func(cmd *cobra.Command, a []string) error {
			body, err := jsonFlag(data)
			if err != nil {
				return err
			}
			return c.act(cmd.Context(), a, "/signal/"+segment(a[2]), body)
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "payload, JSON")
	c.registerReason(cmd)
	c.output.register(cmd)
	return cmd
}

func (c *client) answerCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use: "answer SAGA KEY ASK CHOICE", Short: "Answer an ask", Example: `  edda instance answer loan L1 approve yes`,
		Args: args(cobra.ExactArgs(4)), ValidArgsFunction: c.completeInstance,
		RunE: func(cmd *cobra.Command, a []string) error {
			payload, err := jsonFlag(data)
			if err != nil {
				return err
			}
			body, err := json.Marshal(struct {
				Choice  string          `json:"choice"`
				Payload json.RawMessage `json:"payload,omitempty"`
			}{a[3], payload})
			if err != nil {
				return fmt.Errorf("write answer: %w", err)
			}
			return c.act(cmd.Context(), a, "/answer/"+segment(a[2]), body)
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "payload, JSON")
	c.registerReason(cmd)
	c.output.register(cmd)
	return cmd
}

// jsonFlag checks a flag with JSON before anything is sent.
func jsonFlag(text string) (json.RawMessage, error) {
	if text == "" {
		return nil, nil
	}
	if _, err := jsonvalue.Decode([]byte(text)); err != nil {
		return nil, usagef("--data: %w", err)
	}
	return json.RawMessage(text), nil
}

func (c *client) verbCommand(verb, short string, ask bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb + " SAGA KEY", Short: short,
		Args: args(cobra.ExactArgs(2)), ValidArgsFunction: c.completeInstance,
		RunE: func(cmd *cobra.Command, a []string) error {
			if err := c.reasoned(verb); err != nil {
				return err
			}
			if err := c.sure(ask, fmt.Sprintf("%s %s %s", verb, a[0], a[1])); err != nil {
				return err
			}
			return c.act(cmd.Context(), a, "/"+verb, nil)
		},
	}
	c.output.register(cmd)
	c.registerActor(cmd)
	if ask {
		cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	}
	return cmd
}

func (c *client) stepCommand(verb, short string, ask bool) *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use: verb + " SAGA KEY STEP", Short: short,
		Long: short + ". STEP is a step, or its undo: ship, charge.undo, hold[0].",
		Args: args(cobra.ExactArgs(3)), ValidArgsFunction: c.completeInstance,
		RunE: func(cmd *cobra.Command, a []string) error {
			if err := c.reasoned(verb); err != nil {
				return err
			}
			body, err := jsonFlag(data)
			if err != nil {
				return err
			}
			if err := c.sure(ask, fmt.Sprintf("%s %s of %s %s", verb, a[2], a[0], a[1])); err != nil {
				return err
			}
			return c.act(cmd.Context(), a, "/"+verb+"/"+segment(a[2]), body)
		},
	}
	c.output.register(cmd)
	c.registerActor(cmd)
	if ask {
		cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	} else {
		cmd.Flags().StringVar(&data, "data", "", "input that replaces the previous one, JSON")
	}
	return cmd
}

// sure asks for confirmation of a command that cannot be undone.
func (c *client) sure(ask bool, what string) error {
	if !ask || c.yes {
		return nil
	}
	if !isTerminal(c.term.in) {
		return usagef("%s cannot be taken back: add --yes", what)
	}
	return c.term.agree(what + "? This cannot be taken back")
}

// agree asks a person at the terminal. A no is an error.
func (t *terminal) agree(question string) error {
	if !isTerminal(t.in) {
		return usagef("nobody is at the terminal to answer %q: add --yes", question)
	}
	fmt.Fprintf(t.err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(t.in).ReadString('\n')
	if err != nil || !strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y") {
		return fmt.Errorf("nothing was done")
	}
	return nil
}

// act gives a command to the instance that the first two arguments name.
func (c *client) act(ctx context.Context, a []string, command string, body []byte) error {
	var view server.ActView
	raw, err := c.callInto(ctx, http.MethodPost, instancePath(a)+command, body, &view)
	if err != nil {
		return c.noSaga(ctx, a[0], err)
	}
	return c.acted(raw, view.ID, fmt.Sprintf("%s; now %s", view.Fate, view.Status), view.Outputs)
}

// acted prints the outcome of a command in the format of -o: the server's answer, an id, or
// a line with the outputs.
func (c *client) acted(raw []byte, id, line string, outputs []edda.Output) error {
	switch c.output {
	case outputJSON:
		return indented(c.term.out, raw)
	case outputIDs:
		fmt.Fprintln(c.term.out, printable(id))
		return nil
	}
	fmt.Fprintln(c.term.out, printable(line))
	for _, o := range outputs {
		fmt.Fprintln(c.term.out, "  "+printable(outputLine(o)))
	}
	return nil
}

// completeInstance completes a saga and a key from the server.
func (c *client) completeInstance(cmd *cobra.Command, a []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(a) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	q := url.Values{"limit": {"1000"}}
	if len(a) == 1 {
		q.Set("saga", a[0])
	}
	var list server.InstanceList
	if _, err := c.get(cmd.Context(), "/v1/instances?"+q.Encode(), &list); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	seen := map[string]bool{}
	var out []string
	for _, i := range list.Instances {
		word := i.Saga
		if len(a) == 1 {
			word = i.Key
		}
		if !seen[word] {
			seen[word] = true
			out = append(out, word)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// waitingList lists keys with held or parked events.
func (c *client) waitingList(what, short string) *cobra.Command {
	var saga string
	var p paging
	cmd := &cobra.Command{
		Use: what, Short: short, Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := page(p.limit); err != nil {
				return err
			}
			var found server.WaitingList
			raw, err := c.get(cmd.Context(), "/v1/"+what+"?"+p.query(map[string]string{"saga": saga}), &found)
			if err != nil {
				return err
			}
			defer c.term.more("more", found.Next)
			return waitingKeys().print(c.term, c.output, raw, found.Keys)
		},
	}
	cmd.Flags().StringVar(&saga, "saga", "", "only this saga")
	offerBy(cmd, "saga", c.completeSagas)
	p.register(cmd, "next page")
	c.output.register(cmd)
	return cmd
}

func waitingKeys() listing[server.WaitingKey] {
	return listing[server.WaitingKey]{
		id: func(k server.WaitingKey) string { return k.Saga + " " + k.Key },
		columns: []column[server.WaitingKey]{
			{"saga", func(k server.WaitingKey) string { return k.Saga }},
			{"key", func(k server.WaitingKey) string { return k.Key }},
			{"events", func(k server.WaitingKey) string { return strconv.Itoa(k.Events) }},
			{"first", func(k server.WaitingKey) string { return strings.TrimSpace(k.First.Step + " " + k.First.Type) }},
			{"time", func(k server.WaitingKey) string { return ago(k.First.Time) }},
			{"waits for", func(k server.WaitingKey) string { return k.Waits }},
			{"error", func(k server.WaitingKey) string { return k.Error }},
		},
	}
}
