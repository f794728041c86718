time.sleep(0.3)
n = sum(len(line.split()) for line in get("text"))
put("words", n)
done({"words": n})
