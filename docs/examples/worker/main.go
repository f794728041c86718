// Command worker serves an effect of sagas with NATS alone: worker EFFECT, as docs/NATS.md says.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	ctx := context.Background()
	nc, _ := nats.Connect(os.Getenv("NATS_URL"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.PingInterval(3*time.Second)) // a frozen server is left within 9 s
	js, _ := jetstream.New(nc)
	commands, err := js.CreateOrUpdateConsumer(ctx, "WORKFLOW_COMMANDS", jetstream.ConsumerConfig{
		Durable: "worker_" + os.Args[1], FilterSubject: "tenant.*.effect." + os.Args[1] + ".*", AckWait: time.Minute})
	for err == nil { // a call ends within AckWait
		if m, none := commands.Next(jetstream.FetchMaxWait(5 * time.Second)); none == nil {
			if again := handle(ctx, js, m); again != nil {
				log.Print(again, m.NakWithDelay(5*time.Second))
			}
		}
	}
	log.Fatal(err)
}

// handle acknowledges the command when the stream has its result.
func handle(ctx context.Context, js jetstream.JetStream, m jetstream.Msg) error {
	var c, metadata map[string]json.RawMessage
	if json.Unmarshal(m.Data(), &c) != nil || json.Unmarshal(c["metadata"], &metadata) != nil || c["revoke"] != nil {
		return m.Ack() // no command; or a revocation, and the command's own result counts
	}
	subject := strings.Replace(m.Subject(), ".effect."+os.Args[1], ".effect_result."+os.Args[1], 1)
	events, err := js.Stream(ctx, "WORKFLOW_EVENTS")
	if err != nil {
		return err
	}
	if _, err := events.GetLastMsgForSubject(ctx, subject); err == nil {
		return m.Ack() // an earlier run has published the result
	} else if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return err
	}
	var notAfter time.Time
	outcome, payload := "TimedOut", json.RawMessage(`{"code": "expired"}`)
	if json.Unmarshal(metadata["not_after"], &notAfter) != nil || time.Now().Before(notAfter) {
		outcome, payload = call(metadata["idempotency_key"], c["payload"])
	}
	result, _ := json.Marshal(map[string]any{
		"command_id": c["command_id"], "result_type": outcome, "payload": payload, "metadata": c["metadata"]})
	if _, err := js.Publish(ctx, subject, result, jetstream.WithMsgID(m.Headers().Get(nats.MsgIdHdr)+".result")); err != nil {
		return err
	}
	return m.Ack() // if it is lost, the command comes again, and its result is found
}

// call does the work, once for a key. It returns Succeeded, Failed if it is surely not done, or TimedOut.
func call(key, payload json.RawMessage) (outcome string, result json.RawMessage) {
	log.Printf("call %s %s", key, payload)
	return "Succeeded", json.RawMessage(`{"done": ` + string(key) + `}`)
}
