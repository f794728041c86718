package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"edda/hero/dispatcher"
	"edda/hero/script"
	"edda/internal/httpserver"
)

// heroWorker is what edda hero worker is told.
type heroWorker struct {
	heroRedis
	id, interpreter, dir, metrics, level string
	o                                    dispatcher.WorkerOptions
	limits                               script.Limits
	secrets                              []string
	sandbox                              bool
}

func (t *terminal) heroWorkerCommand() *cobra.Command {
	w := &heroWorker{}
	c := &cobra.Command{
		Use: "worker --worker ID", Short: "Run the jobs of one worker",
		Long: `Run the jobs of one worker until it is stopped. Then running jobs have --grace to
end, and go back to the queue after it. Several processes with the same id share its
queue. The worker also finds jobs of dead workers.`,
		Example: `  edda hero worker --worker w1 --interpreter "python3 -" --concurrency 4`,
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.run(cmd.Context(), t)
		},
	}
	w.register(c)
	f := c.Flags()
	f.StringVar(&w.id, "worker", "", "id of the worker: jobs name it (required)")
	f.StringVar(&w.interpreter, "interpreter", "python3 -", "command that runs a script, which it reads on its standard input")
	f.IntVar(&w.o.Concurrency, "concurrency", 1, "jobs with concurrent: true that run at once")
	f.DurationVar(&w.o.Timeout, "timeout", 10*time.Minute, "timeout of jobs without one, in whole seconds")
	f.DurationVar(&w.o.Grace, "grace", 20*time.Second, "time for running jobs when the worker stops")
	f.DurationVar(&w.o.Keep, "keep", 0, "remove ended jobs after this time; 0: never")
	f.DurationVar(&w.o.Sweep, "sweep", 10*time.Second, "interval of the search for jobs of dead workers")
	f.StringVar(&w.dir, "dir", "", "folder for scripts' temporary files and the audit record (default: one of this user)")
	f.BoolVar(&w.sandbox, "sandbox", false, "run each script as another user, without network and the host's files; needs root")
	f.Int64Var(&w.limits.Memory, "memory", 0, "bytes of memory of a script and its processes; 0: 1 GiB")
	f.DurationVar(&w.limits.CPU, "cpu", 0, "CPU time of a script and its processes; 0: 1h")
	f.Int64Var(&w.limits.Disk, "disk", 0, "bytes in a script's temporary folder; 0: 1 GiB")
	f.IntVar(&w.limits.Processes, "processes", 0, "processes of a script at once; 0: 64")
	f.IntVar(&w.limits.Output, "output", 0, "bytes of standard output, and of standard error; 0: 1 MiB")
	f.Int64Var(&w.o.Logs.Size, "log-size", 0, "bytes of a job's log before it is rotated; 0: 16 MiB in --log-dir, 1 MiB in --dir")
	f.IntVar(&w.o.Logs.Rotations, "log-rotations", script.DefaultLogRotations, "older parts kept beside each log; -1: none")
	f.IntVar(&w.o.Logs.Files, "log-files", script.DefaultLogFiles, "log files of jobs to keep, the newest; -1: all")
	f.DurationVar(&w.o.Logs.Age, "log-age", script.DefaultLogAge, "maximum age of a log since its last write; -1s: none")
	f.StringSliceVar(&w.secrets, "secrets", nil, "name patterns of variables to mask, in place of *SECRET*, *TOKEN* and so on")
	f.StringVar(&w.metrics, "metrics", "", "address that answers /metrics and /health, such as 127.0.0.1:9101")
	f.StringVar(&w.level, "log-level", "info", "debug, info, warn or error")
	return c
}

func (w *heroWorker) run(ctx context.Context, t *terminal) error {
	if w.id == "" {
		return usagef("name the worker with --worker: jobs name it in worker_id")
	}
	command := strings.Fields(w.interpreter)
	if len(command) == 0 {
		return usagef(`--interpreter is empty: want a command, such as "python3 -"`)
	}
	if w.o.Timeout < 0 || w.o.Timeout%time.Second != 0 {
		return usagef("--timeout %s: want whole seconds, such as 30s", w.o.Timeout)
	}
	if l := w.limits; l.Memory < 0 || l.CPU < 0 || l.Disk < 0 || l.Processes < 0 || l.Output < 0 {
		return usagef("--memory, --cpu, --disk, --processes and --output: bounds are not negative; 0 means the default")
	}
	log, err := t.logger(w.level, isTerminal(t.err))
	if err != nil {
		return err
	}
	if err := w.o.Logs.Check(); err != nil {
		return usagef("%w", err)
	}
	w.limits.LogSize, w.limits.LogRotations, w.limits.LogFiles, w.limits.LogAge = w.o.Logs.Size, w.o.Logs.Rotations, w.o.Logs.Files, w.o.Logs.Age
	o := script.Options{Interpreters: map[string][]string{dispatcher.Interpreter: command}, Dir: w.dir, Limits: w.limits, Secrets: w.secrets, Log: log}
	if w.sandbox {
		o.Sandbox = &script.Sandbox{}
	}
	host, err := script.New(o)
	if err != nil {
		return usagef("%w", err)
	}
	if _, err := host.Sweep(); err != nil {
		log.Warn("what scripts of an earlier run left was not cleared away", zap.Error(err))
	}
	db, client, err := w.open(ctx, t)
	if err != nil {
		return err
	}
	defer db.Close()
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	w.o.Scheme, w.o.Order, w.o.LogDir, w.o.Log, w.o.Metrics = dispatcher.Scheme(w.scheme), dispatcher.Order(w.order), w.logDir, log, reg
	w.o.Began = func() {
		log.Info("the worker takes jobs", zap.String("worker", w.id), zap.Strings("interpreter", command))
	}
	worker, err := dispatcher.NewWorker(client, w.id, dispatcher.Scripts{Host: host}, w.o)
	if err != nil {
		return &usageError{err}
	}
	stop, err := serveMetrics(w.metrics, reg, func(ctx context.Context) error { return db.Ping(ctx) })
	if err != nil {
		return err
	}
	defer stop()
	logs, stopLogs := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { _ = host.KeepLogs(logs) }) // it logs what fails, and returns nil
	defer keeping.Wait()
	defer stopLogs()
	return worker.Run(ctx)
}

// metricsWrite bounds how long a client takes to read the page of metrics.
const metricsWrite = 30 * time.Second

// serveMetrics answers /metrics and /health on an address, where one is named.
func serveMetrics(addr string, reg *prometheus.Registry, ping func(context.Context) error) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /health", func(rw http.ResponseWriter, r *http.Request) {
		if err := ping(r.Context()); err != nil {
			http.Error(rw, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(rw, "ok")
	})
	d := httpserver.New(addr, mux, httpserver.Options{Name: "metrics", Metrics: reg, Write: metricsWrite})
	if err := d.Listen(); err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return func() {
		cancel()
		<-ended
	}, nil
}
