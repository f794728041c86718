//go:build !race

package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/realservers"
	"edda/internal/testcerts"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
)

// notRunHere are programs of the docs that no test of this package can run, with the reason. The edda
// commands among their arguments are checked all the same.
var notRunHere = map[string]string{
	"make":        "builds, or runs for minutes; the target must exist",
	"apt":         "changes the machine; tools/deploy installs the packages",
	"cp":          "into /etc",
	"systemctl":   "needs a service manager; tools/deploy checks the unit",
	"nats-server": "a server for each machine; the test's own are in their place",
	"docker":      "needs an engine; tools/deploy checks the file and the image's steps",
	"helm":        "needs a cluster; tools/helm renders the chart",
	"kubectl":     "needs a cluster",
	"curl":        "asks a container",
	"go":          "the worker; systemtest TestTheExampleWorkersServeEffectsOverNATS runs it",
	"python3":     "the worker; systemtest TestTheExampleWorkersServeEffectsOverNATS runs it",
}

// TestTheCommandsOfTheDocsRun runs the commands of each page in their order, in a folder of its own.
// A text behind "# →" comes in the output of its command; so do the lines below a command of a
// block "console", but for their numbers.
func TestTheCommandsOfTheDocsRun(t *testing.T) {
	n := 0
	for _, page := range docPages(t) {
		name := filepath.Base(page)
		t.Run(name, func(t *testing.T) {
			trip := testkit.Value[[]byte](t)(os.ReadFile("testdata/docs/trip.yaml"))
			s := &docSession{t: t, replace: map[string]string{}, env: map[string]string{}, trip: string(trip)}
			for _, section := range docSections(t, page) {
				s.section(name, section)
			}
			n += s.commands
		})
	}
	if n < 80 {
		t.Errorf("only %d commands ran: the test does not find them", n)
	}
}

// docSession runs the commands of a page.
type docSession struct {
	t        *testing.T
	replace  map[string]string // in the words of commands, such as an address
	env      map[string]string
	serving  *running
	commands int
	trip     string // a saga whose test fails
	mended   bool
	made     int // things that commands act on
}

// section runs the blocks of a section.
func (s *docSession) section(page string, section docSection) {
	t := s.t
	blocks := slices.DeleteFunc(slices.Clone(section.blocks), func(b docBlock) bool { return b.info != "sh" && b.info != "console" })
	if len(blocks) == 0 {
		return
	}
	if s.commands == 0 {
		pageFolder(t)
	}
	if before := beforeSections[page+" "+section.title]; before != nil {
		before(s)
	}
	for _, b := range blocks {
		text := strings.ReplaceAll(b.text, "\\\n", " ")
		lines := strings.Split(strings.TrimSpace(text), "\n")
		for i := 0; i < len(lines); i++ {
			line, console := strings.CutPrefix(lines[i], "$ ")
			line, comment, _ := strings.Cut(line+" ", " # ")
			var want []string
			if says, shown := strings.CutPrefix(strings.TrimSpace(comment), "→ "); shown || page == "TUTORIAL.md" {
				want = []string{strings.TrimSpace(cmp.Or(says, comment))}
			}
			for console && i+1 < len(lines) && !strings.HasPrefix(lines[i+1], "$ ") {
				i++
				want = append(want, "~"+lines[i])
			}
			for _, part := range regexp.MustCompile(`; +| && `).Split(line, -1) {
				if part = strings.TrimSpace(part); part != "" {
					s.command(part, want)
				}
			}
		}
	}
}

// pageFolder is the working folder of a page's commands.
func pageFolder(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{"manifests/examples", "docs/hero"} {
		testkit.Must(t, os.CopyFS(filepath.Join(dir, folder), os.DirFS("../"+folder)))
	}
	write(t, filepath.Join(dir, "build.py"), "print(1)\n")
	makefile := testkit.Value[[]byte](t)(os.ReadFile("../Makefile"))
	write(t, filepath.Join(dir, "Makefile"), string(makefile))
	order := testkit.Value[[]byte](t)(os.ReadFile("testdata/docs/order.yaml"))
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "orders"), 0o700))
	write(t, filepath.Join(dir, "orders", "order.yaml"), string(order))
	t.Chdir(dir)
}

// command runs one command.
func (s *docSession) command(line string, want []string) {
	t := s.t
	s.commands++
	begun := time.Now()
	defer func() { t.Logf("%v %s", time.Since(begun).Round(time.Millisecond), line) }()
	args := words(t, line)
	env := maps.Clone(s.env)
	for len(args) > 0 && regexp.MustCompile(`^[A-Z_]+=`).MatchString(args[0]) {
		name, value, _ := strings.Cut(args[0], "=")
		env[name] = s.replaced(value)
		args = args[1:]
	}
	var file string
	if i := slices.Index(args, ">"); i > 0 {
		file, args = args[i+1], args[:i]
	}
	for i := range args {
		if args[i] = s.replaced(args[i]); args[i] == "ID" && args[1] == "hero" {
			args[i] = s.job(args[3])
		} else if args[i] == "ID" {
			args[i] = s.letter(args)
		}
	}
	switch program := filepath.Base(args[0]); program {
	case "export":
		name, value, _ := strings.Cut(args[1], "=")
		if name != "PATH" {
			s.env[name] = value
		}
	case "edda":
		s.edda(env, args[1:], want, file)
	case "nats":
		s.nats(args[1:])
	case "redis-cli":
		url := "redis://" + s.replace["127.0.0.1:6379"]
		if out, err := exec.Command("redis-cli", append([]string{"-u", url}, args[1:]...)...).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) == "" || strings.Contains(string(out), "ERR") {
			t.Errorf("%s: %v %s", line, err, out)
		}
	default:
		s.notRun(line, args)
	}
}

// notRun checks what can be checked of a command that does not run here.
func (s *docSession) notRun(line string, words []string) {
	t := s.t
	if notRunHere[words[0]] == "" {
		t.Errorf("%s: nobody has decided whether this is run", line)
	}
	if i := slices.Index(words, "/edda"); i > 0 {
		if err := accepted(t, slices.Clone(words[i+1:])); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if words[0] == "make" {
		if text := testkit.Value[[]byte](t)(os.ReadFile("Makefile")); !bytes.Contains(text, []byte("\n"+words[1]+":")) {
			t.Errorf("%s: there is no such target", line)
		}
	}
}

// replaced is a word of the docs as it is here.
func (s *docSession) replaced(word string) string {
	for _, old := range slices.Backward(slices.Sorted(maps.Keys(s.replace))) { // the longer of two first
		word = strings.ReplaceAll(word, old, s.replace[old])
	}
	return word
}

// soon are commands that may come before what they need is there: they are repeated.
var soon = regexp.MustCompile(`^(instance (describe|list|held|parked|retry|skip)|cluster (status|move)|ls|deadletter (list|show)|hero (job (list|status|logs)|flow (list|show))|lint|test|graph) ?`)

// edda runs a command of the product. One that may come too soon is repeated until it
// shows what it should.
func (s *docSession) edda(env map[string]string, words, want []string, file string) {
	t := s.t
	line := strings.Join(words, " ")
	if words[0] == "dev" || words[0] == "run" || strings.HasPrefix(line, "hero worker ") {
		s.serve(env, words)
		return
	}
	if strings.HasPrefix(line, "source add ") {
		words = append(words, "--yes") // nobody is at the terminal
	}
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	if s.serving != nil {
		list = append(list, "EDDA_URL="+cmp.Or(env["EDDA_URL"], s.serving.addr), "NATS_URL="+s.serving.nats)
	}
	deadline, tick := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for late := false; ; {
		var answer bytes.Buffer
		out := newScreen()
		term := &terminal{in: strings.NewReader("y\n"), out: io.MultiWriter(&answer, out), err: out, env: list}
		code := term.run(t.Context(), words)
		missing := slices.DeleteFunc(slices.Clone(want), func(w string) bool {
			return strings.Contains(out.String(), w) || strings.HasPrefix(w, "~") && // of a console
				strings.Contains(number.ReplaceAllString(out.String(), "0"), number.ReplaceAllString(w[1:], "0"))
		})
		fine := code == exitDone || code == exitDiffers && strings.Contains(line, "--dry-run") || // as it is documented
			code == exitFailed && len(want) > 0 && (strings.HasSuffix(line, "--watch") || strings.HasPrefix(want[0], "~FAIL "))
		if fine && len(missing) == 0 {
			if file != "" {
				write(t, file, answer.String())
			}
			if m := regexp.MustCompile(`flow (\d+)`).FindStringSubmatch(out.String()); m != nil && strings.HasPrefix(line, "hero flow create") {
				s.replace["1141052000"] = m[1]
			}
			return
		}
		if !soon.MatchString(line) || late {
			t.Fatalf("edda %s: exit code %d, lacks %q\n%s", line, code, missing, out)
		}
		select {
		case <-tick.C:
		case <-deadline:
			late = true
		}
	}
}

// serve starts a process that goes on, in place of the one before it.
func (s *docSession) serve(env map[string]string, words []string) {
	t := s.t
	if words[0] != "hero" && s.serving != nil && !slices.Contains(words, "--cluster") {
		if code := s.serving.stop(); code != exitDone {
			t.Errorf("the process ends with %d\n%s", code, s.serving.err)
		}
	}
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	switch words[0] {
	case "hero": // a worker, beside it
		ctx, cancel := context.WithCancel(t.Context())
		term, ended := &terminal{in: strings.NewReader(""), out: io.Discard, err: newScreen(), env: list}, make(chan int, 1)
		go func() { ended <- term.run(ctx, words) }()
		t.Cleanup(func() {
			if cancel(); <-ended != exitDone {
				t.Errorf("edda %q:\n%s", words, term.err)
			}
		})
	case "dev":
		if slices.Contains(words, "--hero") {
			words = append(words, "--api-http-port", "0", "--api-ws-port", "0")
		}
		s.serving = startDevIn(t, list, words[1:]...)
		if m := regexp.MustCompile(`coordinator (http://\S+)(?s:.*?)redis +(\S+)`).FindStringSubmatch(s.serving.out.String()); m != nil {
			s.env["COORDINATOR_URL"], s.env["EDDA_REDIS"], s.replace["127.0.0.1:6379"] = m[1], "redis://"+m[2], m[2]
		}
	case "run":
		if slices.Contains(words, "--cluster") {
			s.serveNode(list, words)
			return
		}
		if i := slices.Index(words, "--addr"); i > 0 { // startRun has another
			words = slices.Delete(words, i, i+2)
		}
		if i := slices.Index(words, "--probe-addr"); i > 0 {
			words[i+1] = freeAddr(t)
		}
		s.serving = startRunIn(t, list, s.replace["NATS"], words[1:]...)
		if m := s.serving.err.wait(t, started+`|\(ended\)`); m[0] == "(ended)" {
			t.Fatalf("edda %s:\n%s", strings.Join(words, " "), s.serving.err)
		}
		s.replace["edda.internal:8700"] = s.serving.addr
	}
}

// serveNode starts a node of a cluster beside the others, and returns when it follows the log.
func (s *docSession) serveNode(env, words []string) {
	s.serving = startRunIn(s.t, env, s.replace[clusterURLs], words[1:]...)
	if m := s.serving.err.wait(s.t, `"msg":"following the log"|\(ended\)`); m[0] == "(ended)" {
		s.t.Fatalf("edda %s:\n%s", strings.Join(words, " "), s.serving.err)
	}
}

// clusterURLs are the addresses of the NATS servers of a cluster in the docs.
const clusterURLs = "nats://127.0.0.1:4222,nats://127.0.0.1:4223,nats://127.0.0.1:4224"

// nats publishes as the nats CLI does: pub -J [-H name:value]... SUBJECT BODY.
func (s *docSession) nats(words []string) {
	t := s.t
	m := nats.NewMsg("")
	rest := words[1:]
	for ; len(rest) > 2; rest = rest[1:] {
		if rest[0] == "-H" {
			name, value, _ := strings.Cut(rest[1], ":")
			m.Header[name] = []string{value}
			rest = rest[1:]
		}
	}
	m.Subject, m.Data = rest[0], []byte(rest[1])
	nc := testkit.Value[*nats.Conn](t)(nats.Connect(s.serving.nats))
	defer nc.Close()
	js := testkit.Value[jetstream.JetStream](t)(jetstream.New(nc))
	if words[0] != "pub" || words[1] != "-J" {
		t.Errorf("nats %q is not understood", words)
	}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Errorf("nats %q: %v", words, err)
	}
}

// beforeSections prepare what the commands of a section act on.
var beforeSections = map[string]func(*docSession){
	"CLUSTER.md Try it on one machine": func(s *docSession) {
		s.replace[clusterURLs] = natscluster.Start(s.t).URLs()
		for _, port := range []string{"8701", "8702", "8703"} {
			s.replace["127.0.0.1:"+port] = freeAddr(s.t)
		}
	},
	"DEPLOY.md systemd and packages": func(s *docSession) { s.replace["/etc/edda/manifests"] = "orders" },
	"HERO.md Messages and the router": func(s *docSession) {
		s.command(`edda hero call context.create '{"context": {"id": 1, "admins": [12], "readers": [], "executors": []}}'`, nil)
		s.command(`edda hero call runner.create '{"context_id": 1, "caller_id": 12, "runner": {"id": 1, "pubkey": "", "address": "", "topic": "", "local": true}}'`, nil)
	},
	"LANGUAGE.md 9. Tests": func(s *docSession) { write(s.t, "trip.yaml", s.trip) },
	"NATS.md Use an existing stream": func(s *docSession) {
		nc := testkit.Value[*nats.Conn](s.t)(nats.Connect(s.serving.nats))
		defer nc.Close()
		js := testkit.Value[jetstream.JetStream](s.t)(jetstream.New(nc))
		_ = testkit.Value[jetstream.Stream](s.t)(js.CreateStream(s.t.Context(), jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"shop.>"}}))
		s.command(`nats pub -J shop.orders.created.O7 '{"order": "O7", "total": 30, "event_id": "e-1", "at": "2026-03-01T12:00:00Z"}'`, nil)
	},
	"OPERATING.md Start": func(s *docSession) {
		s.replace["NATS"] = startNATS(s.t, "127.0.0.1:0").URL()
		server := testkit.Value[*realservers.Server](s.t)(realservers.Redis(realservers.RedisOptions{}))
		s.t.Cleanup(func() { _ = server.Stop() })
		s.replace["127.0.0.1:6379"] = server.Address()
		write(s.t, "edda.yaml", "manifests: [shop/manifests]\n")
	},
	"OPERATING.md Authentication and roles": func(s *docSession) {
		authority := testcerts.New(s.t)
		authority.IssueInto(s.t, "edda.internal", testcerts.Pair{Cert: "edda.crt", Key: "edda.key"})
		s.env["EDDA_CA"] = authority.File
	},
	"OPERATING.md Encryption at rest": func(s *docSession) { s.replace["/etc/edda/"] = "" },
	"OPERATING.md Operator commands": func(s *docSession) {
		s.orders("O2", "O3")
		s.command(`edda send Order.Placed --tenant acme --id O4 --data '{"order_id": "O4", "total": 0}'`, nil)
		s.command("edda instance describe order O4 --tenant acme", []string{"clerk"})
	},
	"OPERATING.md Dead letters, held, parked and stuck": func(s *docSession) { s.orders() },
	"OPERATING.md A saga that is added later": func(s *docSession) {
		s.replace["NATS"], s.env = startNATS(s.t, "127.0.0.1:0").URL(), map[string]string{"EDDA_TENANT": "default"}
		testkit.Must(s.t, os.Mkdir("later", 0o700))
		write(s.t, "later/alpha.yaml", alphaSaga)
		s.command("edda run --data later-data later", nil)
		s.command(`edda send Order.Placed --id O1 --data '{"id": "O1"}'`, nil)
		s.command("edda instance list", []string{"O1"})
		write(s.t, "later/beta.yaml", betaSaga)
	},
	"OPERATING.md Replay a saga": func(s *docSession) { s.orders("O1") },
}

// orders serves the saga of testdata/docs with orders that wait for a person.
// Bookings fail for good.
func (s *docSession) orders(ids ...string) {
	delete(s.env, "EDDA_URL")
	delete(s.env, "EDDA_CA")
	s.made++
	s.command(fmt.Sprint("edda dev --mock --data orders", s.made, " orders"), nil)
	s.env["EDDA_DATA"] = fmt.Sprint("orders", s.made)
	s.command("edda mock fail book", nil)
	for _, id := range ids {
		s.command("edda send Order.Placed --id "+id+` --data '{"order_id": "`+id+`", "total": 0}'`, nil)
		s.command("edda instance describe order "+id, []string{"waits for   step clerk"})
	}
}

// job is a new job of the page's worker: one that runs if it is to be stopped, else one that failed.
func (s *docSession) job(verb string) string {
	s.made++
	id, script, status := fmt.Sprint("j", s.made), "raise SystemExit(1)", "error"
	if verb == "stop" {
		script, status = "import time; time.sleep(20)", "started"
	}
	s.command("edda hero job run --worker w1 --detach --log "+id+".log --script '"+script+"' --id "+id, nil)
	s.command("edda hero job status "+id, []string{status})
	return id
}

// letter is a new dead letter, which holds its key. Before a redrive as it is the manifest is mended, so that
// a number in quotes is taken.
func (s *docSession) letter(args []string) string {
	t := s.t
	s.made++
	key, amount := fmt.Sprint("X", s.made), "7"
	if s.mended {
		amount = "x"
	}
	for _, event := range []string{"Placed --data '{\"order_id\": \"" + key + "\", \"total\": 0}'", "Corrected --data '{\"order_id\": \"" + key + "\", \"amount\": \"" + amount + "\"}'"} {
		if code, out := s.serving.edda(t, append([]string{"send", "--id", key}, words(t, "Order."+event)...)...); code != exitDone {
			t.Fatal(out)
		}
	}
	s.serving.until(t, "  "+key+"  ", "deadletter", "list")
	_, out := s.serving.edda(t, "deadletter", "list")
	m := regexp.MustCompile(`(?m)^(\S+) .*  ` + key + `  `).FindStringSubmatch(out)
	if m == nil {
		t.Fatal(out)
	}
	if args[2] == "redrive" && !slices.Contains(args, "--data") {
		text := testkit.Value[[]byte](t)(os.ReadFile("orders/order.yaml"))
		write(t, "orders/order.yaml", strings.Replace(string(text), "event.amount + 0", "float(event.amount)", 1))
		s.serving.out.wait(t, "Reloaded: ")
		s.mended = true
	}
	return m[1]
}

// TestTheMockPrintsWhatTheManualShows after an order of the shop that edda init writes.
func TestTheMockPrintsWhatTheManualShows(t *testing.T) {
	t.Parallel()
	dir, _ := inits(t, "order")
	r := startDev(t, "--mock", "--data", t.TempDir(), dir)
	if code, out := r.edda(t, "send", "Order.Placed", "--id", "O1", "--data", `{"order_id":"O1","total":25}`); code != exitDone {
		t.Fatal(out)
	}
	n := 0
	for _, b := range docBlocks(t) {
		if b.info == "text mock" {
			for line := range strings.Lines(b.text) {
				n++
				r.out.wait(t, regexp.QuoteMeta(strings.TrimSuffix(line, "\n")))
			}
		}
	}
	if n < 3 {
		t.Errorf("the manual shows %d lines", n)
	}
}
