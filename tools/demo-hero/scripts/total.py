time.sleep(0.3)
total = sum(get("part%d" % part) for part in range(4))
put("total", total)
done({"total": total, "parts": 4})
