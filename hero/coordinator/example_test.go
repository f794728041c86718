package coordinator

import (
	"context"
	"fmt"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
)

// A coordinator over Redis, and a client that creates an actor, its context and a flow of two
// jobs. Flows run in memory here, and on the engine in the edda binary.
func ExampleNew() {
	db, err := redisdb.Open(redisdb.Options{Addr: shared.Address()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	c, err := New(db, newFakeFlows(db), Options{HTTPAddr: "127.0.0.1:0", WSAddr: "127.0.0.1:0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Listen(); err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()

	client := jsonrpc.NewClient("http://"+c.HTTPAddr(), jsonrpc.ClientOptions{})
	type object = map[string]any
	for _, call := range []struct {
		method string
		params object
	}{
		{"actor.create", object{"actor": object{"id": 1, "pubkey": "ab12"}}},
		{"context.create", object{"context": object{"id": 5, "admins": []int{1}}}},
		{"job.create", object{"context_id": 5, "job": object{"id": 2001, "caller_id": 1, "script": "print(1)", "script_type": "python"}}},
		{"job.create", object{"context_id": 5, "job": object{"id": 2002, "caller_id": 1, "script": "print(2)", "script_type": "python", "dependends": []int{2001}}}},
		{"flow.create", object{"context_id": 5, "flow": object{"id": 33, "caller_id": 1, "jobs": []int{2001, 2002}}}},
		{"flow.start", object{"context_id": 5, "id": 33}},
	} {
		if err := client.Call(ctx, call.method, call.params, nil); err != nil {
			fmt.Println(err)
		}
	}
	var f hero.Flow
	if err := client.Call(ctx, "flow.load", object{"context_id": 5, "id": 33}, &f); err != nil {
		fmt.Println(err)
	}
	fmt.Println(f.Key(), f.Jobs, f.Status)
	fmt.Println(client.Call(ctx, "flow.load", object{"context_id": 5, "id": 33, "actor_id": 2}, nil))

	stop()
	fmt.Println("stopped", <-ended)
	// Output:
	// flow:33 [2001 2002] started
	// call flow.load: Permission denied (-32003): {"do":"ask one of its admins to add the actor to readers, executors or admins","key":"context:5","why":"actor 2 may not read this context"}
	// stopped <nil>
}
