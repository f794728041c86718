package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"edda"
	"edda/hero"
	"edda/hero/dispatcher"
)

// nobodyAfter is when edda hero job run tells that no worker seems to be there.
const nobodyAfter = 3 * time.Second

// heroJobs is the noun: what all its verbs share.
type heroJobs struct {
	heroRedis
	term   *terminal
	output outputFlag
}

func (t *terminal) heroJobCommand() *cobra.Command {
	j := &heroJobs{term: t}
	c := &cobra.Command{
		Use: "job", Short: "Create jobs and follow them",
		Long: `Create and follow jobs for workers of the hero: protocol: those of edda hero worker,
or others.`,
		Example: `  edda hero worker --worker w1 --interpreter "python3 -" &
  edda hero job run --worker w1 --script 'print(6 * 7)'`,
		Args: noun, RunE: help,
	}
	j.register(c)
	c.AddCommand(j.create(), j.submit(), j.run(), j.list(), j.status(), j.logs(), j.stop(), j.requeue())
	return c
}

// jobFlags is a job as the command line gives it.
type jobFlags struct {
	job     dispatcher.Job
	script  string
	env     []string
	timeout time.Duration
}

func (f *jobFlags) register(cmd *cobra.Command, j *heroJobs) {
	fl := cmd.Flags()
	fl.StringVar(&f.job.WorkerID, "worker", "", "worker of the job (required)")
	fl.StringVar(&f.script, "script", "", "the script: text, @FILE, or - for standard input (required)")
	fl.StringVar(&f.job.ID, "id", "", "id of the job (default: a UUID)")
	fl.StringVar(&f.job.CallerID, "caller", "", "creator of the job (USER)")
	fl.StringVar(&f.job.ContextID, "context-id", "", "context of the job")
	fl.DurationVar(&f.timeout, "timeout", 0, "timeout in whole seconds; 0: the worker's")
	fl.Uint32Var(&f.job.Retries, "retries", 0, "runs after the first, when it fails or its worker dies")
	fl.StringVar((*string)(&f.job.Priority), "priority", "", "high: before the other jobs of its worker; default normal")
	fl.BoolVar(&f.job.Concurrent, "concurrent", false, "it may run beside others of its worker")
	fl.StringVar(&f.job.LogPath, "log", "", "file in the worker's log folder for the script's output")
	fl.StringArrayVar(&f.env, "env", nil, "a variable of the script, NAME=VALUE; repeatable")
	fl.StringArrayVar(&f.job.Dependencies, "after", nil, "id of a job that must finish before; repeatable")
	if err := cmd.RegisterFlagCompletionFunc("priority", cobra.FixedCompletions([]string{"normal", string(hero.PriorityHigh)}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is not there: a mistake in this program
	}
	for _, flag := range []string{"worker", "after"} {
		complete := j.completeJobs
		if flag == "worker" {
			complete = j.completeWorkers
		}
		if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err) // the flag is not there: a mistake in this program
		}
	}
	j.output.register(cmd)
}

// read makes the job of the flags.
func (f *jobFlags) read(t *terminal) (dispatcher.Job, error) {
	j := f.job
	switch {
	case j.WorkerID == "":
		return j, usagef("name the worker with --worker")
	case f.script == "":
		return j, usagef("give the script with --script: text, @FILE, or - for standard input")
	case f.timeout < 0 || f.timeout%time.Second != 0 || f.timeout/time.Second > 1<<32-1:
		return j, usagef("--timeout %s: want whole seconds, such as 30s", f.timeout)
	}
	if j.Priority != hero.PriorityNormal {
		var err error
		if j.Priority, err = hero.ParsePriority(string(j.Priority)); err != nil {
			return j, usagef("--priority: %w", err)
		}
	}
	j.Timeout = uint32(f.timeout / time.Second)
	if j.CallerID == "" {
		j.CallerID = t.getenv("USER")
	}
	for _, line := range f.env {
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" {
			return j, usagef("--env: want NAME=VALUE")
		}
		if j.EnvVars == nil {
			j.EnvVars = map[string]string{}
		}
		j.EnvVars[name] = value
	}
	var err error
	j.Script, err = t.content("--script", f.script)
	return j, err
}

func (j *heroJobs) create() *cobra.Command {
	var f jobFlags
	cmd := &cobra.Command{
		Use: "create --worker W --script S", Short: "Create a job that runs only after it is submitted",
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			job, err := f.read(j.term)
			if err != nil {
				return err
			}
			return j.with(cmd.Context(), func(c *dispatcher.Client) error {
				job, err := c.Create(cmd.Context(), job)
				if err != nil {
					return err
				}
				return j.say(job, "created; submit it with: edda hero job submit "+job.ID)
			})
		},
	}
	f.register(cmd, j)
	return cmd
}

func (j *heroJobs) run() *cobra.Command {
	var f jobFlags
	var wait time.Duration
	var detach bool
	cmd := &cobra.Command{
		Use: "run --worker W --script S", Short: "Create a job, submit it and wait for its result",
		Example: `  edda hero job run --worker w1 --script 'print(6 * 7)'
  edda hero job run --worker w1 --script @build.py --timeout 60s --retries 2 --detach`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			job, err := f.read(j.term)
			if err != nil {
				return err
			}
			return j.with(cmd.Context(), func(c *dispatcher.Client) error {
				job, err := c.Dispatch(cmd.Context(), job)
				if err != nil {
					return err
				}
				if detach {
					return j.say(job, "dispatched; see edda hero job status "+job.ID)
				}
				return j.await(cmd.Context(), c, job, wait)
			})
		},
	}
	f.register(cmd, j)
	cmd.Flags().DurationVar(&wait, "wait", 0, "maximum wait; the job continues after it. 0: until it ends")
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not wait")
	return cmd
}

// await waits for a job's end and shows it. A job that failed is exit code 1.
func (j *heroJobs) await(ctx context.Context, c *dispatcher.Client, job dispatcher.Job, wait time.Duration) error {
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	late := time.AfterFunc(nobodyAfter, func() {
		if alive, err := c.WorkerAlive(ctx, job.WorkerID); err == nil && !alive {
			fmt.Fprintf(j.term.err, "edda: no worker of ours answers for %s; job %s waits in its queue: start one with edda hero worker --worker %[1]s\n", job.WorkerID, job.ID)
		}
	})
	defer late.Stop()
	done, err := c.Wait(ctx, job.ID)
	if ctx.Err() != nil {
		return fmt.Errorf("job %s has not ended; it goes on: see edda hero job status %[1]s", job.ID)
	}
	if err != nil {
		return err
	}
	return j.result(done)
}

// result shows what a job brought: its output as it is, for the next program.
func (j *heroJobs) result(job dispatcher.Job) error {
	switch j.output {
	case outputJSON:
		if err := j.term.json(job); err != nil {
			return err
		}
	case outputIDs:
		fmt.Fprintln(j.term.out, job.ID)
	default:
		fmt.Fprint(j.term.out, job.Output)
		if job.Output != "" && !strings.HasSuffix(job.Output, "\n") {
			fmt.Fprintln(j.term.out)
		}
	}
	if job.Status == hero.JobError {
		return fmt.Errorf("job %s failed: %s", job.ID, printable(job.Error))
	}
	return nil
}

func (j *heroJobs) submit() *cobra.Command {
	return j.each("submit ID...", "Queue created jobs, once their dependencies have finished", func(ctx context.Context, c *dispatcher.Client, id string) (string, error) {
		word, err := c.Submit(ctx, id)
		return string(word), err
	})
}

func (j *heroJobs) stop() *cobra.Command {
	return j.each("stop ID...", "Ask the workers of jobs to stop them", func(ctx context.Context, c *dispatcher.Client, id string) (string, error) {
		word, err := c.Stop(ctx, id)
		return string(word), err
	})
}

// each does something to several jobs: all of them, whatever becomes of one.
func (j *heroJobs) each(use, short string, do func(context.Context, *dispatcher.Client, string) (string, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: args(cobra.MinimumNArgs(1)), ValidArgsFunction: j.completeJobs,
		RunE: func(cmd *cobra.Command, ids []string) error {
			return j.with(cmd.Context(), func(c *dispatcher.Client) error { return j.all(cmd.Context(), c, ids, do) })
		},
	}
	j.output.register(cmd)
	return cmd
}

func (j *heroJobs) all(ctx context.Context, c *dispatcher.Client, ids []string, do func(context.Context, *dispatcher.Client, string) (string, error)) error {
	type done struct {
		ID   string `json:"id"`
		Fate string `json:"fate"`
	}
	var list []done
	var failed error
	for _, id := range ids {
		fate, err := do(ctx, c, id)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		list = append(list, done{id, fate})
	}
	switch j.output {
	case outputJSON:
		text, err := json.Marshal(list)
		if err == nil && len(list) > 0 {
			err = indented(j.term.out, text)
		}
		failed = errors.Join(failed, err)
	default:
		for _, d := range list {
			line := d.ID
			if j.output == outputTable {
				line += "  " + d.Fate
			}
			fmt.Fprintln(j.term.out, printable(line))
		}
	}
	return failed
}

func (j *heroJobs) requeue() *cobra.Command {
	var stale bool
	cmd := &cobra.Command{
		Use: "requeue ID... | --stale", Short: "Run jobs again that failed, or whose workers died",
		Long: `Run jobs again that failed, whose workers died, or that are in no queue: their
attempts count anew. With --stale, find jobs whose worker died or whose timeout
passed, and queue them again within their retries, as edda hero worker does itself.`,
		ValidArgsFunction: j.completeJobs,
		RunE: func(cmd *cobra.Command, ids []string) error {
			if stale == (len(ids) > 0) {
				return usagef("name jobs, or give --stale; use it as: %s", cmd.UseLine())
			}
			return j.with(cmd.Context(), func(c *dispatcher.Client) error {
				if stale {
					return j.sweep(cmd.Context(), c)
				}
				return j.all(cmd.Context(), c, ids, func(ctx context.Context, c *dispatcher.Client, id string) (string, error) {
					word, err := c.Requeue(ctx, id)
					return string(word), err
				})
			})
		},
	}
	cmd.Flags().BoolVar(&stale, "stale", false, "find jobs of dead workers")
	j.output.register(cmd)
	return cmd
}

func (j *heroJobs) sweep(ctx context.Context, c *dispatcher.Client) error {
	swept, err := c.Sweep(ctx)
	if err != nil {
		return err
	}
	switch j.output {
	case outputJSON:
		return j.term.json(swept)
	case outputIDs:
		for _, id := range slices.Concat(swept.Requeued, swept.Failed) {
			fmt.Fprintln(j.term.out, printable(id))
		}
		return nil
	}
	fmt.Fprintf(j.term.out, "%d requeued, %d failed, %d released\n", len(swept.Requeued), len(swept.Failed), swept.Released)
	return nil
}

func (j *heroJobs) status() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status ID", Aliases: []string{"describe", "get", "info"}, Short: "Show one job",
		Args: args(cobra.ExactArgs(1)), ValidArgsFunction: j.completeJobs,
		RunE: func(cmd *cobra.Command, a []string) error {
			return j.with(cmd.Context(), func(c *dispatcher.Client) error {
				job, err := c.Job(cmd.Context(), a[0])
				if err != nil {
					return err
				}
				return j.describe(job)
			})
		},
	}
	j.output.register(cmd)
	return cmd
}

func (j *heroJobs) describe(job dispatcher.Job) error {
	switch j.output {
	case outputJSON:
		return j.term.json(job)
	case outputIDs:
		fmt.Fprintln(j.term.out, job.ID)
		return nil
	}
	timeout := "the worker's"
	if job.Timeout > 0 {
		timeout = (time.Duration(job.Timeout) * time.Second).String()
	}
	for _, line := range [][2]string{
		{"job", job.ID}, {"status", string(job.Status)}, {"error", job.Error}, {"worker", job.WorkerID}, {"caller", job.CallerID}, {"context", job.ContextID},
		{"after", strings.Join(job.Waits(), ", ")}, {"attempts", fmt.Sprintf("%d of %d", job.Attempts, uint64(job.Retries)+1)}, {"timeout", timeout},
		{"log", job.LogPath}, {"created", ago(job.CreatedAt)}, {"updated", ago(job.UpdatedAt)}, {"output", job.Output},
	} {
		if line[1] != "" {
			fmt.Fprintf(j.term.out, "%-9s %s\n", line[0], paragraph(line[1]))
		}
	}
	return nil
}

// paragraph prints lines of others beneath each other.
func paragraph(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n          ")
}

func (j *heroJobs) logs() *cobra.Command {
	return &cobra.Command{
		Use: "logs ID", Short: "Print the log of a job's script",
		Long: `Print the log of a job's script, the last 4 MiB. The log is a file: run this where
the worker runs, with the same --log-dir.`,
		Args: args(cobra.ExactArgs(1)), ValidArgsFunction: j.completeJobs,
		RunE: func(cmd *cobra.Command, a []string) error {
			return j.with(cmd.Context(), func(c *dispatcher.Client) error {
				text, err := c.Logs(cmd.Context(), a[0])
				if err != nil {
					return err
				}
				for line := range strings.Lines(text) {
					fmt.Fprintln(j.term.out, printable(strings.TrimSuffix(line, "\n")))
				}
				return nil
			})
		},
	}
}

func (j *heroJobs) list() *cobra.Command {
	var f dispatcher.Filter
	var status string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List jobs, the newest first", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if status != "" && !slices.Contains(jobStatuses(), status) {
				return usagef("--status %s: want one of %s", status, strings.Join(jobStatuses(), ", "))
			}
			if err := page(limit); err != nil {
				return err
			}
			f.Status = hero.JobStatus(status)
			return j.with(cmd.Context(), func(c *dispatcher.Client) error { return j.show(cmd.Context(), c, f, limit) })
		},
	}
	cmd.Flags().StringVar(&f.Worker, "worker", "", "only of this worker")
	cmd.Flags().StringVar(&f.Caller, "caller", "", "only of this caller")
	cmd.Flags().StringVar(&f.Context, "context-id", "", "only of this context")
	cmd.Flags().StringVar(&status, "status", "", "only dispatched, started, error or finished")
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number, up to 1000")
	offer(cmd, "status", jobStatuses())
	j.output.register(cmd)
	return cmd
}

func jobStatuses() []string {
	return []string{string(hero.JobDispatched), string(hero.JobStarted), string(hero.JobError), string(hero.JobFinished)}
}

// show lists jobs; hashes that cannot be read are told beside them.
func (j *heroJobs) show(ctx context.Context, c *dispatcher.Client, f dispatcher.Filter, limit int) error {
	jobs := []dispatcher.Job{}
	for job, err := range c.List(ctx, f) {
		if err != nil && job.ID == "" {
			return err
		}
		if err != nil {
			fmt.Fprintf(j.term.err, "edda: %s\n", printable(err.Error()))
			continue
		}
		jobs = append(jobs, job)
	}
	slices.SortFunc(jobs, func(a, b dispatcher.Job) int {
		if n := b.CreatedAt.Compare(a.CreatedAt); n != 0 {
			return n
		}
		return strings.Compare(a.ID, b.ID)
	})
	if more := len(jobs) - limit; more > 0 {
		fmt.Fprintf(j.term.err, "%d more: add --limit, --status or --worker\n", more)
		jobs = jobs[:limit]
	}
	return jobList.print(j.term, j.output, nil, jobs)
}

var jobList = listing[dispatcher.Job]{
	id: func(job dispatcher.Job) string { return job.ID },
	columns: []column[dispatcher.Job]{
		{"job", func(job dispatcher.Job) string { return job.ID }},
		{"worker", func(job dispatcher.Job) string { return job.WorkerID }},
		{"status", func(job dispatcher.Job) string { return string(job.Status) }},
		{"error", func(job dispatcher.Job) string { return brief(job.Error) }},
		{"updated", func(job dispatcher.Job) string { return ago(job.UpdatedAt) }},
	},
}

// brief is the beginning of a text, for a table.
func brief(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// with runs a command with a client.
func (j *heroJobs) with(ctx context.Context, do func(*dispatcher.Client) error) error {
	c, closed, err := j.client(ctx, j.term)
	if err != nil {
		return err
	}
	defer closed()
	return refusedByUs(do(c))
}

// refusedByUs makes what was wrong on the command line exit code 2.
func refusedByUs(err error) error {
	var cycle *dispatcher.CycleError
	if errors.As(err, &cycle) && errors.Is(err, edda.Permanent) {
		return &usageError{err}
	}
	return err
}

func (j *heroJobs) say(job dispatcher.Job, what string) error {
	switch j.output {
	case outputJSON:
		return j.term.json(job)
	case outputIDs:
		fmt.Fprintln(j.term.out, job.ID)
		return nil
	}
	fmt.Fprintf(j.term.out, "%s  %s\n", job.ID, what)
	return nil
}

// completeJobs completes ids from Redis, where it answers.
func (j *heroJobs) completeJobs(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return j.complete(cmd, func(job dispatcher.Job) string { return job.ID }, typed)
}

func (j *heroJobs) completeWorkers(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return j.complete(cmd, func(job dispatcher.Job) string { return job.WorkerID }, typed)
}

// maxCompletions bounds what a shell is offered.
const maxCompletions = 100

func (j *heroJobs) complete(cmd *cobra.Command, of func(dispatcher.Job) string, typed string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	c, closed, err := j.client(cmd.Context(), j.term)
	if err != nil {
		return nil, none
	}
	defer closed()
	var words []string
	for job, err := range c.List(cmd.Context(), dispatcher.Filter{}) {
		if err != nil || len(words) >= maxCompletions {
			break
		}
		if word := of(job); word != "" && strings.HasPrefix(word, typed) && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	return words, none
}
