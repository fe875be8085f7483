-- The names of breakers, so that they can be listed. The list may name one that is gone, and whoever notices takes it out.
--
-- KEYS 1 the names (sorted by when they were last added)      ARGV 1 clock  2 `add`, `remove` or `list`  3 name or most
if ARGV[2] == 'remove' then
  redis.call('ZREM', KEYS[1], ARGV[3])
  return {}
end
if ARGV[2] == 'list' then
  return redis.call('ZRANGE', KEYS[1], 0, -1)
end
redis.call('ZADD', KEYS[1], text(math.floor(now_us() / 1000)), ARGV[3])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - tonumber(ARGV[4]))
return {}
