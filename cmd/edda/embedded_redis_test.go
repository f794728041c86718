package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
)

// heroDev is edda dev --hero on free ports, with its coordinator's URL.
func heroDev(t *testing.T, data string) (*running, string) {
	t.Helper()
	d := startDev(t, "--hero", "--api-http-port", "0", "--api-ws-port", "0", "--data", data)
	m := regexp.MustCompile(`coordinator (http://\S+)`).FindStringSubmatch(d.out.String())
	if m == nil {
		t.Fatalf("it does not run:\n%s%s", d.out, d.err)
	}
	return d, m[1]
}

// heroSays runs one command of edda hero.
func heroSays(t *testing.T, url string, args ...string) string {
	t.Helper()
	out := newScreen()
	term := &terminal{in: strings.NewReader(""), out: out, err: out, env: []string{"COORDINATOR_URL=" + url}}
	code := term.run(t.Context(), append([]string{"hero"}, args...))
	return fmt.Sprintf("exit %d: %s", code, out)
}

// readmeSession is the session of the README, without the worker's commands.
func readmeSession(t *testing.T) (commands [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`'[^']*'|\S+`)
	for line := range strings.Lines(string(page)) {
		if rest, ok := strings.CutPrefix(line, "bin/edda hero "); ok && !strings.Contains(rest, "worker") {
			var args []string
			for _, w := range words.FindAllString(rest, -1) {
				args = append(args, strings.Trim(w, "'"))
			}
			commands = append(commands, args)
		}
	}
	if len(commands) < 8 {
		t.Fatalf("the README's session is %q", commands)
	}
	return commands
}

// playReadme says what each command of the session answers, without times, attempts,
// keys of messages and what the watch drew before the end.
func playReadme(t *testing.T, url string) string {
	t.Helper()
	var out strings.Builder
	for _, args := range readmeSession(t) {
		said := heroSays(t, url, args...)
		if at := strings.LastIndex(said, "flow 33 of context"); at > 0 {
			said = said[:len("exit 0: ")] + said[at:]
		}
		fmt.Fprintf(&out, "%s: %s\n", strings.Join(args, " "), said)
	}
	return regexp.MustCompile(`"(created_at|updated_at|message_key|attempt)": *("[^"]*"|\d+)`).ReplaceAllString(out.String(), `"$1": …`)
}

// flow.create said that the flow ran before and was deleted.
func TestTheReadmesSessionDoesTheSameAfterARestart(t *testing.T) {
	data := t.TempDir()
	d, url := heroDev(t, data)
	if first := playReadme(t, url); strings.Contains(first, "-32") || !strings.Contains(first, "ZeroDivisionError") && !strings.Contains(first, "error") {
		t.Fatalf("the session:\n%s", first)
	}
	shown, again := heroSays(t, url, "flow", "show", "7", "33"), playReadme(t, url)
	if code := d.stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, d.err)
	}

	d, url = heroDev(t, data)
	if got := heroSays(t, url, "flow", "show", "7", "33"); got != shown {
		t.Errorf("after the restart the flow is\n%s\nand was\n%s", got, shown)
	}
	if got := playReadme(t, url); got != again {
		t.Errorf("after the restart the session is\n%s\nand was\n%s", got, again)
	}
	for _, args := range [][]string{
		{"call", "job.create", `{"context_id": 7, "job": {"id": 3, "caller_id": 12, "script": "print(6*7)", "script_type": "python"}}`},
		{"call", "flow.create", `{"context_id": 7, "flow": {"id": 34, "caller_id": 12, "jobs": [3]}}`},
		{"flow", "start", "7", "34"},
	} {
		if out := heroSays(t, url, args...); !strings.HasPrefix(out, "exit 0") {
			t.Fatalf("%s: %s", args, out)
		}
	}
	if out := heroSays(t, url, "flow", "show", "7", "34", "--watch"); !strings.HasPrefix(out, "exit 0") || !strings.Contains(out, "finished") {
		t.Errorf("another flow: %s", out)
	}
	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, d.err)
	}
}

// It ended as timeout, because its jobs were gone.
func TestAFlowUnderWayGoesOnAfterARestartOfDev(t *testing.T) {
	data := t.TempDir()
	d, url := heroDev(t, data)
	for _, args := range append(readmeSession(t)[:3],
		[]string{"call", "job.create", `{"context_id": 7, "job": {"id": 1, "caller_id": 12, "script": "print(6*7)", "script_type": "python", "prerequisites": ["payment"]}}`},
		[]string{"call", "flow.create", `{"context_id": 7, "flow": {"id": 33, "caller_id": 12, "jobs": [1]}}`},
		[]string{"flow", "start", "7", "33"}) {
		if out := heroSays(t, url, args...); !strings.HasPrefix(out, "exit 0") {
			t.Fatalf("%s: %s", args, out)
		}
	}
	if code := d.stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, d.err)
	}

	_, url = heroDev(t, data)
	if out := heroSays(t, url, "call", "flow.prerequisite_met", `{"context_id": 7, "caller_id": 12, "id": 33, "name": "payment"}`); !strings.HasPrefix(out, "exit 0") {
		t.Fatalf("the prerequisite: %s", out)
	}
	if out := heroSays(t, url, "flow", "show", "7", "33", "--watch"); !strings.HasPrefix(out, "exit 0") || !strings.Contains(out, "finished") {
		t.Errorf("the flow: %s", out)
	}
}

// embedded serves a folder's Redis; stop ends it in order.
func embedded(t *testing.T, folder string, log *zap.Logger) (r *embeddedRedis, stop func() error) {
	t.Helper()
	r, err := openEmbeddedRedis(folder, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return r, func() error { cancel(); return <-ended }
}

func clientOf(t *testing.T, r *embeddedRedis, db int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: r.Addr(), DB: db})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestTheEmbeddedRedisForgetsNothingOverARestart(t *testing.T) {
	folder, ctx, bytes := t.TempDir(), t.Context(), "\x00\xff\r\n'é"
	r, stop := embedded(t, folder, zap.NewNop())
	const far = 2147483647
	for _, db := range []int{0, 7, far} {
		c := clientOf(t, r, db)
		for _, cmd := range [][]any{
			{"SET", "s" + bytes, bytes}, {"SET", "empty", ""}, {"SET", "soon", "x", "PX", "40"}, {"SET", "later", "x", "PX", "3600000"},
			{"HSET", "h", "f" + bytes, bytes, "empty", ""}, {"RPUSH", "l", "b", "a", bytes, "b"}, {"SADD", "set", "x", bytes},
			{"ZADD", "z", "0.1", "a", "1.7e300", "b", "-inf", bytes, "9007199254740993", "c"}, {"PEXPIRE", "z", "7200000"},
		} {
			if err := c.Do(ctx, cmd...).Err(); err != nil {
				t.Fatalf("%v: %v", cmd, err)
			}
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	r, stop = embedded(t, folder, zap.NewNop())
	for _, db := range []int{0, 7, far} {
		c := clientOf(t, r, db)
		eventually(t, func() bool { return !r.DB(db).Exists("soon") }) // while it was stopped, or now
		if keys := r.DB(db).Keys(); len(keys) != 7 {
			t.Errorf("database %d: %q", db, keys)
		}
		if got, err := c.Get(ctx, "s"+bytes).Result(); err != nil || got != bytes {
			t.Errorf("string %q %v", got, err)
		}
		if got, err := c.Get(ctx, "empty").Result(); err != nil || got != "" {
			t.Errorf("empty string %q %v", got, err)
		}
		if got := c.HGetAll(ctx, "h").Val(); !reflect.DeepEqual(got, map[string]string{"f" + bytes: bytes, "empty": ""}) {
			t.Errorf("hash %q", got)
		}
		if got := c.LRange(ctx, "l", 0, -1).Val(); !reflect.DeepEqual(got, []string{"b", "a", bytes, "b"}) {
			t.Errorf("list %q", got)
		}
		if got := c.SMembersMap(ctx, "set").Val(); !reflect.DeepEqual(got, map[string]struct{}{"x": {}, bytes: {}}) {
			t.Errorf("set %q", got)
		}
		scores := fmt.Sprint(c.ZScore(ctx, "z", "a").Val(), c.ZScore(ctx, "z", "b").Val(), c.ZScore(ctx, "z", bytes).Val(), c.ZScore(ctx, "z", "c").Val())
		if scores != "0.1 1.7e+300 -Inf 9.007199254740992e+15" {
			t.Errorf("sorted set %s", scores)
		}
		for key, most := range map[string]time.Duration{"later": time.Hour, "z": 2 * time.Hour} {
			if got := c.PTTL(ctx, key).Val(); got > most || got < most-10*time.Minute {
				t.Errorf("%s expires in %s", key, got)
			}
		}
		if got := c.PTTL(ctx, "h").Val(); got != -1 {
			t.Errorf("h expires in %s", got)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// A kill loses what changed since the last dump, and nothing else.
func TestTheEmbeddedRedisIsWrittenWhileItRuns(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, redisDumpFile)
	r, stop := embedded(t, folder, zap.NewNop())
	c := clientOf(t, r, 3)
	for _, value := range []string{"one", "two"} {
		if err := c.Set(t.Context(), "k", value, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool {
			entries, err := (&embeddedRedis{path: path}).read()
			return err == nil && len(entries) == 1 && entries[0].DB == 3 && reflect.DeepEqual(entries[0].Values, []string{value})
		})
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(path + ".*"); err != nil || len(left) > 0 {
		t.Errorf("%q stay, %v", left, err)
	}
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come in")
		}
	}
}

func TestAnUnchangedEmbeddedRedisIsNotWrittenAgain(t *testing.T) {
	r, err := openEmbeddedRedis(t.TempDir(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer r.shut()
	for i := range 200 {
		r.DB(i%3).HSet("h", fmt.Sprint(i), "x")
		if _, err := r.DB(0).SetAdd("s", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		r.databases[i%3] = true
	}
	r.DB(0).SetTTL("h", time.Hour)
	if err := r.dump(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		before := r.now
		eventually(t, func() bool { r.tick(); return r.now.After(before) })
		if err := r.dump(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(r.path); !os.IsNotExist(err) {
		t.Errorf("it was written again: %v", err)
	}
	r.DB(2).HSet("h", "1", "y")
	if err := r.dump(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.path); err != nil {
		t.Errorf("a change was not written: %v", err)
	}
}

func TestADamagedDumpOfTheEmbeddedRedisRefusesTheStart(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, redisDumpFile)
	r, stop := embedded(t, folder, zap.NewNop())
	if err := r.Set("k", "a value"); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Replace(whole, []byte("a value"), []byte("a valve"), 1) // which decodes
	for name, text := range map[string][]byte{"flipped": flipped, "cut": whole[:len(whole)-1], "empty": nil, "foreign": []byte("REDIS0011"), "magic": []byte(redisDumpMagic)} {
		write(t, path, string(text))
		if _, err := openEmbeddedRedis(folder, zap.NewNop()); err == nil || !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "to begin anew") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnEmbeddedRedisTooLargeOrOfAnotherTypeSaysSo(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	r, err := openEmbeddedRedis(t.TempDir(), zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	defer r.shut()
	if _, err := r.XAdd("stream", "*", []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.dump(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := logs.FilterField(zap.String("type", "stream")).Len(); n != 1 {
		t.Errorf("of the stream it says %v", logs.All())
	}
	r.max = 100
	if err := r.Set("k", strings.Repeat("x", 100)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r.said(r.dump(t.Context()))
	}
	if n := logs.FilterMessageSnippet("are not kept").Len(); n != 1 {
		t.Errorf("of the size it says %v", logs.All())
	}
}

// An actor packs a whole flow into a message; the coordinator is restarted in the middle.
func TestAMessageThatCarriesAFlowIsProcessedOverARestart(t *testing.T) {
	data := t.TempDir()
	d, url := heroDev(t, data)
	say := func(args ...string) string {
		t.Helper()
		out := heroSays(t, url, args...)
		if !strings.HasPrefix(out, "exit 0") {
			t.Fatalf("%s: %s", args, out)
		}
		return out
	}
	for _, args := range readmeSession(t)[:3] {
		say(args...)
	}
	say("call", "message.create", `{"context_id": 7, "message": {"id": 101, "caller_id": 12, "message_type": "job", "flow_id": 33, "job": [
		{"id": 2, "script": "print(2)", "script_type": "python", "dependends": [1]},
		{"id": 1, "script": "print(1)", "script_type": "python", "prerequisites": ["payment"]}]}}`)
	eventually(t, func() bool { return strings.Contains(heroSays(t, url, "flow", "show", "7", "33"), "started") })
	if code := d.stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, d.err)
	}
	_, url = heroDev(t, data)
	say("flow", "met", "7", "33", "payment")
	if out := say("flow", "show", "7", "33", "--watch"); !strings.Contains(out, "finished, 2 of 2 jobs completed\n  0   ✔ 1\n  1   ✔ 2 ←1\n") {
		t.Errorf("the flow: %s", out)
	}
	eventually(t, func() bool {
		return strings.Contains(say("call", "message.load", `{"context_id": 7, "caller_id": 12, "id": 101}`), `"status": "processed"`)
	})
	if out := say("call", "message.list", `{"context_id": 7}`); !strings.Contains(out, `"reply_to": "message:12:101"`) || !strings.Contains(out, `\"1.output\":\"1\\n\"`) {
		t.Errorf("no result message: %s", out)
	}
}

// The greeting ended with edda instance list, which shows nothing of flows. Its commands are played
// as they stand, up to a flow that runs.
func TestTheGreetingOfDevHeroNamesCommandsOfSagas(t *testing.T) {
	d, url := heroDev(t, t.TempDir())
	_, try, _ := strings.Cut(d.out.String(), "Try:\n")
	try, _, _ = strings.Cut(try, "\n\n")
	words := regexp.MustCompile(`'[^']*'|\S+`)
	lines := strings.Split(strings.TrimSpace(try), "\n")
	if len(lines) != 4 {
		t.Fatalf("it suggests %q", lines)
	}
	for _, line := range lines {
		line, _, _ = strings.Cut(line, "#")
		var args []string
		for _, w := range words.FindAllString(strings.Replace(line, "FILE", exampleFlow, 1), -1) {
			args = append(args, strings.Trim(w, "'"))
		}
		out := newScreen()
		if code := (&terminal{in: strings.NewReader(""), out: out, err: out}).run(t.Context(), args[1:]); code != 0 {
			t.Fatalf("%s: exit %d: %s", line, code, out)
		}
	}
	eventually(t, func() bool { return strings.Contains(heroSays(t, url, "flow", "list", "7"), "finished") })
}
