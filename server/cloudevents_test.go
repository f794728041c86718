package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"edda"
	"edda/stream/wire"
)

const (
	oneCloudEvent  = "Content-Type: application/cloudevents+json"
	manyCloudEvent = "Content-Type: application/cloudevents-batch+json; charset=utf-8"
	pullRequest    = `{"specversion":"1.0","type":"com.github.pull_request.opened","source":"https://github.com/o/r","id":"d-1","subject":"7","data":{"number":7}}`
)

func TestACloudEventIsPublishedInEveryMode(t *testing.T) {
	for name, test := range map[string]struct {
		body    string
		headers []string
	}{
		"structured":                   {pullRequest, []string{oneCloudEvent}},
		"structured in capitals":       {pullRequest, []string{"Content-Type: Application/CloudEvents+JSON"}},
		"structured, headers repeated": {pullRequest, []string{oneCloudEvent, "ce-specversion: 1.0", "ce-type: com.github.pull_request.opened", "ce-source: https://github.com/o/r", "ce-id: d-1"}},
		"binary": {`{"number":7}`, []string{"Content-Type: application/json", "ce-specversion: 1.0", "ce-type: com.github.pull_request.opened",
			"ce-source: https://github.com/o/r", "ce-id: d%2D1", "ce-subject: 7"}},
		"base64": {strings.Replace(pullRequest, `"data":{"number":7}`, `"data_base64":"eyJudW1iZXIiOjd9"`, 1), []string{oneCloudEvent}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakes()
			code, body := call(t, start(t, f), "POST", "/v1/events", test.body, append(test.headers, "x-tenant-id: acme", "traceparent: 00-1-2-3")...)
			if code != http.StatusOK || !strings.Contains(body, `"event_id":"https://github.com/o/r d-1"`) || !strings.Contains(body, `"seq":12`) {
				t.Fatalf("%d %s", code, body)
			}
			want := edda.Event{Kind: edda.KindEvent, Tenant: "acme", ID: "https://github.com/o/r d-1", AggregateType: "pull_request", AggregateID: "7",
				Type: "opened", FullType: "com.github.pull_request.opened", Payload: json.RawMessage(`{"number":7}`), Trace: "00-1-2-3"}
			if got := f.sent[0]; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Errorf("published %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestACloudEventWithoutASubjectIsAboutItsSource(t *testing.T) {
	f := newFakes()
	call(t, start(t, f), "POST", "/v1/events", strings.Replace(pullRequest, `"subject":"7",`, "", 1), oneCloudEvent)
	call(t, start(t, f), "POST", "/v1/events", strings.Replace(pullRequest, `"subject":"7",`, `"aggregatetype":"Issue","aggregateid":8,`, 1), oneCloudEvent)
	if got := f.sent[0]; got.AggregateID != "https://github.com/o/r" {
		t.Errorf("published %+v", got)
	}
	if got := f.sent[1]; got.AggregateType != "Issue" || got.AggregateID != "8" {
		t.Errorf("published %+v", got)
	}
}

// TestACloudEventSaysWhoSentIt: the audit names whom the token and the headers name.
func TestACloudEventSaysWhoSentIt(t *testing.T) {
	f := newFakes()
	forged := strings.Replace(pullRequest, `"id"`, `"eddaby":"root","eddawhy":"forged","id"`, 1)
	call(t, start(t, f), "POST", "/v1/events", forged, oneCloudEvent)
	call(t, start(t, f), "POST", "/v1/events", forged, oneCloudEvent, "x-edda-by: dora", "x-edda-why: again")
	if f.sent[0].By != "" || f.sent[0].Why != "" || f.sent[1].By != "dora" || f.sent[1].Why != "again" {
		t.Errorf("published %+v", f.sent)
	}
}

func TestAWrongCloudEventIsRefusedWithWhatToMend(t *testing.T) {
	for name, test := range map[string]struct {
		body, says string
		code       int
		headers    []string
	}{
		"no JSON":         {`{`, "the CloudEvent cannot be read", 400, nil},
		"no id":           {strings.Replace(pullRequest, `"id":"d-1",`, "", 1), "id: MUST be a non-empty string", 400, nil},
		"no source":       {strings.Replace(pullRequest, `"source":"https://github.com/o/r",`, "", 1), "source: REQUIRED", 400, nil},
		"version":         {strings.Replace(pullRequest, `"1.0"`, `"0.3"`, 1), `CloudEvents version \"0.3\" is not 1.0`, 400, nil},
		"no aggregate":    {strings.Replace(pullRequest, "com.github.pull_request.opened", "opened", 1), "set aggregatetype", 400, nil},
		"no event":        {strings.Replace(pullRequest, "request.opened", "request.", 1), "ends with a dot", 400, nil},
		"another tenant":  {strings.Replace(pullRequest, `"id"`, `"tenantid":"evil","id"`, 1), `the body says tenant \"evil\"`, 400, nil},
		"a name twice":    {strings.Replace(pullRequest, `"number":7`, `"number":7,"number":8`, 1), `\"number\" is there twice`, 400, nil},
		"twice in base64": {strings.Replace(pullRequest, `"data":{"number":7}`, `"data_base64":"eyJhIjoxLCJhIjoyfQ=="`, 1), `\"a\" is there twice`, 400, nil},
		"text":            {strings.Replace(pullRequest, `"data":{"number":7}`, `"datacontenttype":"text/plain","data":"x"`, 1), `data of type \"text/plain\" is not JSON`, 400, nil},
		"too large":       {strings.Replace(pullRequest, `7}`, strings.Repeat("7", 1<<20)+`}`, 1), "allowed are 1048576", 400, nil},
		"beyond the body": {strings.Repeat(" ", maxBody+1), "send fewer or smaller events", 413, nil},
		"avro":            {`x`, `\"application/cloudevents+avro\" is not JSON`, 400, []string{"Content-Type: application/cloudevents+avro"}},
		"a long reason":   {pullRequest, "at most 200 characters", 422, []string{oneCloudEvent, "x-edda-why: " + strings.Repeat("x", 1001)}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakes()
			if test.headers == nil {
				test.headers = []string{oneCloudEvent}
			}
			code, body := call(t, start(t, f), "POST", "/v1/events", test.body, test.headers...)
			if code != test.code || !strings.Contains(body, test.says) || len(f.sent) > 0 {
				t.Errorf("%d %.400s, published %d; want %d %s", code, body, len(f.sent), test.code, test.says)
			}
		})
	}
}

func batchOf(n int) string {
	var members []string
	for i := range n {
		members = append(members, strings.Replace(pullRequest, "d-1", fmt.Sprintf("d-%d", i), 1))
	}
	return "[" + strings.Join(members, ",") + "]"
}

func TestABatchIsPublishedInOrder(t *testing.T) {
	f := newFakes()
	h := start(t, f)
	code, body := call(t, h, "POST", "/v1/events", batchOf(3), manyCloudEvent)
	var got PublishedList
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != 200 || len(got.Events) != 3 || len(f.sent) != 3 {
		t.Fatalf("%d %s, published %d", code, body, len(f.sent))
	}
	for i, ev := range f.sent {
		if want := fmt.Sprintf("https://github.com/o/r d-%d", i); ev.ID != want || got.Events[i].ID != want || got.Events[i].Seq != 12 {
			t.Errorf("event %d is %s, answered as %+v", i, ev.ID, got.Events[i])
		}
	}
	if code, body := call(t, h, "POST", "/v1/events", `[]`, manyCloudEvent); code != 200 || body != `{"events":[]}`+"\n" {
		t.Errorf("an empty batch: %d %s", code, body)
	}
}

func TestABatchWithAWrongMemberIsNotStoredAtAll(t *testing.T) {
	f := newFakes()
	h := start(t, f)
	batch := strings.Replace(strings.Replace(batchOf(4), "d-1", "", 1), `"d-3"`, `"d-3","tenantid":"evil"`, 1)
	code, body := call(t, h, "POST", "/v1/events", batch, manyCloudEvent)
	for _, says := range []string{"2 of 4 CloudEvents are wrong, and none is stored", `"location":"body[1]"`, "id: MUST be", `"location":"body[3]"`, "evil"} {
		if code != 400 || !strings.Contains(body, says) {
			t.Errorf("%d %s does not say %s", code, body, says)
		}
	}
	for _, batch := range []string{batchOf(wire.MaxBatch + 1), `null`, `{}`, pullRequest, `[1]`, ``} {
		if code, body := call(t, h, "POST", "/v1/events", batch, manyCloudEvent); code != 400 {
			t.Errorf("%.40s: %d %.200s", batch, code, body)
		}
	}
	if len(f.sent) > 0 {
		t.Errorf("published %d", len(f.sent))
	}
}

// TestABatchThatIsCutSaysWhere: the sender posts all of it again, and the ids do the rest.
func TestABatchThatIsCutSaysWhere(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		code int
		says string
	}{
		"NATS is away": {edda.Classify(edda.Temporary, "no answer"), 503, "no answer: send the same again"},
		"too slow":     {context.DeadlineExceeded, 504, "send the same again"},
		"never":        {edda.Classify(edda.Permanent, "the subject is too long"), 422, "the subject is too long"},
	} {
		f := newFakes()
		inbox := &cutInbox{fakes: f, at: 2, err: test.err}
		code, body := call(t, start(t, f, func(o *Options) { o.Inbox = inbox }), "POST", "/v1/events", batchOf(4), manyCloudEvent)
		if code != test.code || !strings.Contains(body, "CloudEvent 2 of the batch, https://github.com/o/r d-2, is not known to be stored; those before it are") || !strings.Contains(body, test.says) || len(f.sent) != 2 {
			t.Errorf("%s: %d %s, published %d", name, code, body, len(f.sent))
		}
	}
}

// cutInbox fails from one event on.
type cutInbox struct {
	*fakes
	at  int
	err error
}

func (c *cutInbox) Publish(ctx context.Context, ev edda.Event) (Stored, error) {
	if len(c.sent) == c.at {
		return Stored{}, c.err
	}
	return c.fakes.Publish(ctx, ev)
}

func TestACloudEventKeepsToTheTenantsOfItsToken(t *testing.T) {
	f := ofAcme()
	h := guarded(t, f)
	for tenant, want := range map[string]int{"acme": 200, "other": 403} {
		for _, kind := range []string{oneCloudEvent, manyCloudEvent} {
			body := pullRequest
			if kind == manyCloudEvent {
				body = batchOf(2)
			}
			if code, said := call(t, h, "POST", "/v1/events", body, kind, bearer("operator"), "x-tenant-id: "+tenant); code != want {
				t.Errorf("%s, %s: %d %s", tenant, kind, code, said)
			}
		}
	}
	for _, ev := range f.sent {
		if ev.Tenant != "acme" {
			t.Errorf("published %+v", ev)
		}
	}
}

func TestAWebhookAsksBeforeItDelivers(t *testing.T) {
	h := start(t, newFakes())
	for origin, rate := range map[string]string{"eventemitter.example.com": "*", "": ""} {
		r, err := http.NewRequest(http.MethodOptions, h.URL+"/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("WebHook-Request-Origin", origin)
		resp, err := h.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 200 || resp.Header.Get("WebHook-Allowed-Origin") != origin || resp.Header.Get("WebHook-Allowed-Rate") != rate {
			t.Errorf("%q: %d %v", origin, resp.StatusCode, resp.Header)
		}
	}
}

// TestTheManualShowsAnEventAsItIsStored posts the request of docs/OPERATING.md.
func TestTheManualShowsAnEventAsItIsStored(t *testing.T) {
	page, err := os.ReadFile("../docs/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```text request\n(\\S+) (\\S+)\n(.*?)\n\n(.*?)\n```\n\n(.*?)\n\n").FindStringSubmatch(string(page))
	if shown == nil {
		t.Fatal("the manual shows no request")
	}
	f := newFakes()
	if code, said := call(t, start(t, f), shown[1], shown[2], shown[4], strings.Split(shown[3], "\n")...); code != 200 {
		t.Fatalf("%d %s", code, said)
	}
	ev := f.sent[0]
	if want := fmt.Sprintf("Stored as the event `%s` of `%s` `%s`, id `%s`, full type `%s`.", ev.Type, ev.AggregateType, ev.AggregateID, ev.ID, ev.FullType); shown[5] != want {
		t.Errorf("the manual says\n%s\nwant\n%s", shown[5], want)
	}
}
