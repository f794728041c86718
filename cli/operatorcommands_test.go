package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edda/server"
)

const loanSaga = `saga: loan
key: event.id
on:
  LoanAsked: {start: true, set: {asked: =meta.by}, do: [{ask: review, to: managers, with: {choices: [approve, reject]}}]}
  review.approve: {set: {approved: =meta.by, note: =event.note}}
  signal.pay: {when: meta.by != nil, set: {paid: =meta.by}}
  LoanPaid: {set: {booked: =meta.by}, do: [{done: =state.approved}]}
tests:
  - name: who approves is kept
    steps:
      - {event: LoanAsked, data: {id: L1}, expect: [{ask: review}]}
      - {answer: review, with: approve, by: ann, expect: []}
      - {signal: pay, by: bob}
      - {event: LoanPaid, data: {id: L1}}
    end: {status: done, result: ann, state: {asked: null, approved: ann, note: null, paid: bob, booked: null}}
`

// auditLines are the acts that the audit lists, oldest first, without their times.
func auditLines(t *testing.T, r *running, args ...string) []string {
	t.Helper()
	code, out := r.edda(t, append([]string{"audit", "list", "-o", "json"}, args...)...)
	var list server.AuditList
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
		t.Fatalf("%d %v %s", code, err, out)
	}
	var lines []string
	for _, a := range list.Audits {
		lines = append([]string{fmt.Sprintf("%s %s %s: %s (%s)", a.By, a.Verb, a.Key, a.Detail, a.Reason)}, lines...)
	}
	return lines
}

func TestADryReplayExitsDoneWhereInstancesDiffer(t *testing.T) {
	dir := folder(t, map[string]string{"loan.yaml": loanSaga})
	r := startDev(t, dir, "--data", t.TempDir())
	r.edda(t, "send", "Loan.LoanAsked", "--id", "L1", "--data", `{"id":"L1"}`, "--by", "cleo")
	r.until(t, "review", "instance", "describe", "loan", "L1")
	if code, out := r.edda(t, "replay", "loan", "--newest", "--dry-run"); code != exitDone || !strings.Contains(out, "0 differ") {
		t.Errorf("nothing differs: %d %s", code, out)
	}
	write(t, filepath.Join(dir, "loan.yaml"), strings.Replace(loanSaga, "asked: =meta.by", "by: =meta.by", 1))
	r.out.wait(t, "Reloaded: sagas loan v1")
	for _, output := range []string{"table", "json", "ids"} {
		if code, out := r.edda(t, "replay", "loan", "--newest", "--dry-run", "-o", output); code != 3 {
			t.Errorf("-o %s: an instance differs: %d %s", output, code, out)
		}
	}
	if code, out := r.edda(t, "replay", "loan", "--newest", "--why", "a better name"); code != exitDone || !strings.Contains(out, "1 were exchanged") {
		t.Errorf("exchanged: %d %s", code, out)
	}
	if code, out := r.edda(t, "replay", "loan", "--dry-run"); code != exitDone {
		t.Errorf("afterwards: %d %s", code, out)
	}
	if code, _ := r.edda(t, "replay", "nope", "--dry-run"); code != exitFailed {
		t.Errorf("no such saga: %d", code)
	}
}

// TestWhoAnsweredAnAskIsNowhere: signal, answer and send left no entry in the
// audit, and no expression could see who acted.
func TestWhoAnsweredAnAskIsNowhere(t *testing.T) {
	dir := folder(t, map[string]string{"loan.yaml": loanSaga})
	if code, out, said := shell(t, nil, "test", dir); code != 0 {
		t.Fatalf("%s%s", out, said)
	}
	data := t.TempDir()
	r := startDev(t, dir, "--data", data)
	do := func(want string, args ...string) {
		t.Helper()
		if code, out := r.edda(t, args...); code != 0 || !strings.Contains(out, want) {
			t.Fatalf("edda %s: %d %s", strings.Join(args, " "), code, out)
		}
	}
	do("#1", "send", "Loan.LoanAsked", "--id", "L1", "--data", `{"id":"L1"}`, "--by", "cleo", "--why", "by telephone")
	r.until(t, "review", "instance", "describe", "loan", "L1")
	do("handled", "instance", "answer", "loan", "L1", "review", "approve", "--data", `{"note":"secret"}`, "--by", "ann", "--why", "good income")
	do("handled", "instance", "signal", "loan", "L1", "pay", "--by", "bob")
	if code, _ := r.edda(t, "instance", "answer", "loan", "L1", "review", "reject", "--by", "mallory"); code == 0 {
		t.Error("an ask was answered twice")
	}
	post(t, r, "/v1/events", `{"aggregate_type":"Loan","aggregate_id":"L1","event_type":"LoanPaid","event_id":"p1","payload":{"id":"L1"}}`, "x-edda-by: dora") // no reason: a service
	r.until(t, "done", "instance", "describe", "loan", "L1")
	post(t, r, "/v1/events", `{"aggregate_type":"Loan","aggregate_id":"L9","event_type":"Nobody","event_id":"n1","payload":{}}`, "x-edda-by: dora", "x-edda-why: a try")

	_, out := r.edda(t, "instance", "describe", "loan", "L1")
	for _, want := range []string{`"approved":"ann"`, `"asked":"cleo"`, `"paid":"bob"`, `"booked":null`, `result      "ann"`, "review.approve by ann", "signal.pay by bob", "Loan.LoanAsked by cleo", "review.reject by mallory"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	r.until(t, "a try", "audit", "list")
	got := strings.Join(auditLines(t, r), "\n")
	const want = `cleo send default/loan/L1: event LoanAsked ID (AGGREGATE_EVENTS#1); handled (by telephone)
ann answer default/loan/L1: ask review, choice approve; handled (good income)
bob signal default/loan/L1: signal pay; handled ()
mallory answer default/loan/L1: ask review, choice reject; late ()
dora send default//: event Nobody n1 (AGGREGATE_EVENTS#3); ignored (a try)`
	if id := strings.Fields(got)[5]; strings.Replace(got, id, "ID", 1) != want {
		t.Errorf("the audit has\n%s\nwant\n%s", got, want)
	}
	// Who acted is in the history, so that the same comes out again.
	do("1 came out the same, 0 differ", "replay", "loan", "--dry-run")
	r.stop()
	again := startDev(t, dir, "--data", data)
	if code, out := again.edda(t, "replay", "loan", "--dry-run"); code != exitDone || !strings.Contains(out, "0 differ") {
		t.Errorf("%d %s", code, out)
	}
}

// post makes a call without the client, with headers.
func post(t *testing.T, r *running, path, body string, headers ...string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+r.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		t.Fatalf("%s: %s", path, resp.Status)
	}
	return resp.Status
}

func TestReloadAndDrainLeaveNoAuditEntry(t *testing.T) {
	dir := folder(t, map[string]string{"loan.yaml": loanSaga})
	data := t.TempDir()
	r := startDev(t, dir, "--data", data)
	if code, out := r.edda(t, "reload", "--by", "ann", "--why", "to see"); code != 0 {
		t.Fatal(out)
	}
	write(t, filepath.Join(dir, "more.yaml"), orderSaga)
	r.out.wait(t, `Reloaded: sagas loan v1, order v1;`)
	write(t, filepath.Join(dir, "more.yaml"), "saga: [")
	r.err.wait(t, "not reloaded")
	if code, out := r.edda(t, "reload", "--by", "bob"); code != 1 || !strings.Contains(out, "more.yaml") {
		t.Fatal(out)
	}
	if code, out := r.edda(t, "drain", "--by", "cleo", "--why", "a new machine"); code != 0 {
		t.Fatal(out)
	}
	r.edda(t, "drain", "--by", "cleo") // how far is it?
	r.out.wait(t, `\(ended\)`)
	if err := os.Remove(filepath.Join(dir, "more.yaml")); err != nil {
		t.Fatal(err)
	}
	again := startDev(t, dir, "--data", data)
	got := strings.Join(auditLines(t, again, "--process"), "\n")
	for _, want := range []string{
		"ann reload //: taken in: nothing changed (to see)",
		"edda dev reload //: taken in: saga order version 1+", " (a file changed)",
		"bob reload //: refused: 1 errors in the manifests, the first: ",
		"cleo drain //: a staged stop begins (a new machine)",
	} {
		if strings.Count(got, want) != 1 && !strings.Contains(want, "a file changed") || !strings.Contains(got, want) {
			t.Errorf("%q is not in the audit once:\n%s", want, got)
		}
	}
}

const failingTest = `
  - name: nobody may approve
    steps:
      - {event: LoanAsked, data: {id: L1}, expect: [{ask: review}, {event: Never}]}
`

func TestReloadAcceptsAManifestWhoseTestsFail(t *testing.T) {
	dir := folder(t, map[string]string{"loan.yaml": loanSaga})
	r := startDev(t, dir, "--data", t.TempDir())
	// In edda dev a saved file is taken in, and what fails is said.
	write(t, filepath.Join(dir, "loan.yaml"), strings.Replace(loanSaga, "note: =event.note", "note: =event.text", 1)+failingTest)
	r.err.wait(t, `warning: saga loan: the test "nobody may approve" fails: step 1`)
	r.out.wait(t, "Reloaded: sagas loan v1")

	code, out := r.edda(t, "reload", "--by", "ann")
	for _, want := range []string{
		"nothing changed", `loan.yaml:`, `saga loan: the test "nobody may approve" fails: step 1 (event LoanAsked): `, "Never",
		"1 test fails: nothing was taken in", "edda reload --skip-tests --why TEXT",
	} {
		if code != exitFailed || !strings.Contains(out, want) {
			t.Errorf("%d: %q is missing in\n%s", code, want, out)
		}
	}
	if code, out := r.edda(t, "reload", "--skip-tests"); code != exitUsage || !strings.Contains(out, "say why") {
		t.Errorf("without a reason: %d %s", code, out)
	}
	resp, err := http.Post("http://"+r.addr+"/admin/reload?skip_tests=true", "", nil)
	if err != nil || resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("over HTTP without a reason: %v %v", resp, err)
	}
	resp.Body.Close()
	if code, out := r.edda(t, "reload", "--skip-tests", "--by", "bob", "--why", "the test is wrong"); code != 0 || !strings.Contains(out, "loan version") {
		t.Errorf("with a reason: %d %s", code, out)
	}
	got := strings.Join(auditLines(t, r, "--process"), "\n")
	for _, want := range []string{"ann reload //: refused: 2 errors in the manifests, the first: saga loan: the test", "bob reload //: taken in: nothing changed; tests skipped (the test is wrong)"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in the audit:\n%s", want, got)
		}
	}
}
