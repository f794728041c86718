package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"edda/hero"
	"edda/hero/coordinator"
	"edda/hero/flow"
	"edda/hero/jsonrpc"
)

const (
	// takeBackWithin bounds the deletion of what was created when the rest failed: a
	// person who pressed Ctrl-C waits for it.
	takeBackWithin = 15 * time.Second
	// idBlock is how many ids a flow takes for itself: a round number to read, and as
	// many as it may have jobs.
	idBlock = flow.MaxNodes
	// maxBlocks bounds the tries to find free ids. Even with a million flows in the
	// context five that are taken, one after the other, do not happen.
	maxBlocks = 5
)

// flowCreation makes one flow of a file.
type flowCreation struct {
	client *jsonrpc.Client
	file   flowFile
	made   []uint32 // jobs that are there, or may be
	flow   bool     // the same of the flow
}

func (t *terminal) flowCreate(h *heroClient) *cobra.Command {
	var contextID, actor uint32
	var start, dry bool
	var output outputFlag
	c := &cobra.Command{
		Use: "create FILE", Short: "Create a flow and its jobs from a file of YAML or JSON",
		Long: `Create a flow and its jobs from a file of YAML or JSON, - for standard input. Jobs
have names in the file and depend on each other by these names. Ids of the jobs and
the flow are chosen unless the file gives them. The file is checked before anything
is sent. If one object cannot be created, the created ones are deleted again.

    name: nightly
    context: 7
    actor: 12              # not needed with a token: it is the token's
    env: {STAGE: test}     # of every job
    nodes:
      - {name: fetch, type: python, file: fetch.py, timeout: 30s, retries: 2}
      - {name: count, type: python, script: "print(6 * 7)", depends: [fetch], env: {N: "1"}}
      - {name: send, type: bash, script: "echo sent", depends: [count], prerequisites: [approved], queue_timeout: 12h}`,
		Example: "  edda hero flow create nightly.yaml --dry-run\n  edda hero flow create nightly.yaml --start\n  edda hero flow create nightly.yaml --context 8 -o ids",
		Args:    args(cobra.ExactArgs(1)),
		ValidArgsFunction: first(func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
		}),
		RunE: func(cmd *cobra.Command, words []string) error {
			file, err := t.flowFile(words[0])
			if err != nil {
				return err
			}
			file.Context, file.Actor = cmp.Or(contextID, file.Context), cmp.Or(actor, file.Actor)
			switch {
			case file.Context == 0:
				return usagef("the flow names no context: add context: to the file, or --context")
			case file.Actor == 0 && h.tokenFile == "":
				return usagef("the flow names no actor, who creates it: add actor: to the file, or --actor, or call with --token-file")
			case dry:
				return t.planned(file, output)
			}
			client, err := h.open(t)
			if err != nil {
				return err
			}
			return t.createFlow(cmd.Context(), h, &flowCreation{client: client, file: file}, start, output)
		},
	}
	c.Flags().Uint32Var(&contextID, "context", 0, "create it in this context, overriding the file")
	c.Flags().Uint32Var(&actor, "actor", 0, "create it as this actor, overriding the file")
	c.Flags().BoolVar(&start, "start", false, "start it, too")
	c.Flags().BoolVar(&dry, "dry-run", false, "check the file and show the flow; nothing is sent")
	c.MarkFlagsMutuallyExclusive("start", "dry-run")
	output.register(c)
	return c
}

// flowFile reads and checks a file; what is wrong with it is printed.
func (t *terminal) flowFile(path string) (flowFile, error) {
	from, name, dir := "@"+path, path, filepath.Dir(path)
	if path == "-" {
		from, name, dir = path, "standard input", "."
	}
	text, err := t.text("FILE", from)
	if err != nil {
		return flowFile{}, err
	}
	f, problems := readFlowFile(name, dir, []byte(text))
	if problems.Failed() {
		problems.Print(t.err, t.color(t.err))
		return f, &silentError{}
	}
	return f, nil
}

// planned shows what would be created.
func (t *terminal) planned(f flowFile, output outputFlag) error {
	numbered := f.numbered(1, false)
	d, err := flow.Define(numbered.flow(), numbered.jobs())
	if err != nil {
		return err
	}
	if output == outputJSON {
		type node struct {
			Name          string   `json:"name"`
			Type          string   `json:"type"`
			Depends       []string `json:"depends,omitempty"`
			Prerequisites []string `json:"prerequisites,omitempty"`
		}
		var nodes []node
		for _, n := range f.Nodes {
			nodes = append(nodes, node{n.Name, string(n.Job.ScriptType), n.Depends, n.Job.Prerequisites})
		}
		return t.json(map[string]any{"name": f.Name, "context_id": f.Context, "caller_id": f.Actor, "nodes": nodes})
	}
	asked := "nothing was sent; create it without --dry-run"
	for _, line := range strings.SplitAfterN(drawFlow(d.State().Graph(), numbered.flow(), t.color(t.out)), "\n", 2)[1:] {
		fmt.Fprintf(t.out, "flow %s of context %d: %s\n%s%s\n", cmp.Or(printable(f.Name), "without a name"), f.Context, many(uint64(len(f.Nodes)), "job", "jobs"), line, asked)
	}
	return nil
}

// createFlow creates the flow and its jobs, or neither.
func (t *terminal) createFlow(ctx context.Context, h *heroClient, c *flowCreation, start bool, output outputFlag) error {
	if err := c.create(ctx); err != nil {
		left, node := c.takeBack(ctx), nodeError{}
		if errors.As(err, &node) {
			t.complain(fmt.Errorf("node %s could not be created", node.node))
		}
		if c.flow || len(c.made) > 0 {
			t.complain(errors.New(cmp.Or(left, "what was created of the flow was deleted again")))
		}
		return h.failed(err)
	}
	started := false
	if start {
		if err := c.client.Call(ctx, "flow.start", flowID{ContextID: c.file.Context, ID: c.file.ID}, &started); err != nil {
			t.complain(fmt.Errorf("the flow %d was created and not started; once that is mended: edda hero flow start %d %d", c.file.ID, c.file.Context, c.file.ID))
			return h.failed(err)
		}
	}
	return t.created(c.file, started, output)
}

// created says what there is now, and what to do next.
func (t *terminal) created(f flowFile, started bool, output outputFlag) error {
	switch output {
	case outputIDs:
		fmt.Fprintln(t.out, f.ID)
		return nil
	case outputJSON:
		jobs := map[string]uint32{}
		for _, n := range f.Nodes {
			jobs[n.Name] = n.Job.ID
		}
		return t.json(map[string]any{"id": f.ID, "name": f.Name, "context_id": f.Context, "caller_id": f.Actor, "jobs": jobs, "started": started})
	}
	fmt.Fprintf(t.out, "flow %s of context %d: created, with %s\n", titled(f.ID, f.Name), f.Context, many(uint64(len(f.Nodes)), "job", "jobs"))
	for _, n := range f.Nodes {
		line := fmt.Sprintf("  %-10d  %s", n.Job.ID, n.Name)
		if len(n.Depends) > 0 {
			line += "  after " + strings.Join(n.Depends, ", ")
		}
		fmt.Fprintln(t.out, printable(line))
	}
	if started {
		fmt.Fprintf(t.out, "it is started; look at it with: edda hero flow show %d %d --watch\n", f.Context, f.ID)
		return nil
	}
	fmt.Fprintf(t.out, "start it with: edda hero flow start %d %d\n", f.Context, f.ID)
	return nil
}

// create makes the flow, then its jobs: so that whatever is there of it has a flow by
// which it is found. Ids that are taken are chosen anew.
func (c *flowCreation) create(ctx context.Context) error {
	given := c.file
	for try := 1; ; try++ {
		base := (1 + rand.Uint32N(math.MaxUint32/idBlock-2)) * idBlock
		c.file = given.numbered(base+1, true)
		c.file.ID = cmp.Or(given.ID, base)
		chosen, err := c.once(ctx, given)
		if err == nil || !chosen || try == maxBlocks {
			return err
		}
		if left := c.takeBack(ctx); left != "" {
			return fmt.Errorf("%w; %s", err, left)
		}
		c.made, c.flow = nil, false
	}
}

// once tries one choice of ids; chosen tells that one of them is taken.
func (c *flowCreation) once(ctx context.Context, given flowFile) (chosen bool, err error) {
	f := c.file.flow()
	free, err := c.free(ctx, "flow.load", hero.FlowKey(f.ID), flowID{ContextID: f.ContextID, ID: f.ID})
	if err != nil {
		return false, err
	}
	if !free {
		return given.ID == 0, taken(hero.FlowKey(f.ID), "leave id out of the file, and one is chosen")
	}
	c.flow = true
	if err := c.client.Call(ctx, "flow.create", map[string]any{"context_id": f.ContextID, "flow": f}, &f); err != nil {
		no := (*jsonrpc.Error)(nil)
		refused := errors.As(err, &no)
		c.flow = !refused || passing(err) // else it is certain that it was not made
		return given.ID == 0 && refused && no.Code == jsonrpc.AlreadyExists, err
	}
	c.file.Actor = f.CallerID // a token's, where the file says none
	for i, j := range c.file.jobs() {
		key := hero.JobKey(j.CallerID, j.ID)
		free, err := c.free(ctx, "job.load", key, map[string]any{"context_id": j.ContextID, "caller_id": j.CallerID, "id": j.ID})
		if err != nil {
			return false, err
		}
		if !free {
			return given.Nodes[i].Job.ID == 0, taken(key, "leave the node's id out of the file, and one is chosen")
		}
		c.made = append(c.made, j.ID)
		if err := c.client.Call(ctx, "job.create", map[string]any{"context_id": j.ContextID, "job": j}, nil); err != nil {
			return false, nodeError{c.file.Nodes[i].Name, err}
		}
	}
	return false, nil
}

// nodeError says which node an error is about.
type nodeError struct {
	node string
	err  error
}

func (e nodeError) Error() string { return fmt.Sprintf("node %s: %v", e.node, e.err) }
func (e nodeError) Unwrap() error { return e.err }

func taken(key, do string) error {
	return &jsonrpc.Error{Code: jsonrpc.AlreadyExists, Message: "Already exists", Data: coordinator.Detail{Key: key, Why: key + " is there already, and is left as it is", Do: do}}
}

// free tells whether there is no object of that key.
func (c *flowCreation) free(ctx context.Context, method, key string, params any) (bool, error) {
	err := c.client.Call(ctx, method, params, nil)
	if err != nil && missing(err) == key {
		return true, nil
	}
	return false, err
}

// missing is the key of the object that a call did not find, empty where it is another error.
func missing(err error) string {
	no := (*jsonrpc.Error)(nil)
	if !errors.As(err, &no) || no.Code != jsonrpc.NotFound {
		return ""
	}
	var d coordinator.Detail
	if raw, err := json.Marshal(no.Data); err != nil || json.Unmarshal(raw, &d) != nil {
		return ""
	}
	return d.Key
}

// takeBack deletes the jobs and the flow that this run created. Where some cannot be
// deleted, it returns a message with the commands that delete them later.
func (c *flowCreation) takeBack(ctx context.Context) (left string) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), takeBackWithin)
	defer done()
	var calls []string
	if f := c.file; c.flow && !deleted(ctx, c.client, "flow.delete", flowID{ContextID: f.Context, ID: f.ID}) {
		calls = append(calls, fmt.Sprintf("edda hero flow delete %d %d --jobs", f.Context, f.ID))
	}
	for _, id := range c.made {
		if !deleted(ctx, c.client, "job.delete", ownedID(c.file.Context, c.file.Actor, id)) && len(calls) == 0 {
			calls = append(calls, leftJobs(c.file.Context, c.file.Actor, c.made))
		}
	}
	if len(calls) == 0 {
		return ""
	}
	return "a part of the flow was created and cannot be deleted now; delete it with: " + strings.Join(calls, "; ")
}

func ownedID(context, caller, id uint32) map[string]any {
	return map[string]any{"context_id": context, "caller_id": caller, "id": id}
}

// leftJobs is how jobs without a flow are deleted.
func leftJobs(context, caller uint32, ids []uint32) string {
	words := strings.ReplaceAll(orNone(ids), ",", "")
	return fmt.Sprintf(`for id in %s; do edda hero call job.delete '{"context_id": %d, "caller_id": %d, "id": '$id'}'; done`, words, context, caller)
}

// deleted deletes an object; one that is not there is deleted.
func deleted(ctx context.Context, client *jsonrpc.Client, method string, params any) bool {
	err := client.Call(ctx, method, params, nil)
	return err == nil || missing(err) != ""
}
