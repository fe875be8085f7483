-- A small value.      KEYS 1 the value      ARGV 1 clock  2 `put`, `put_new`, `get` or `remove`  3 the value  4 life in ms
-- Whether there is one is a matter of the clock of this step, so it is asked before anything else.
local now = math.floor(now_us() / 1000)
local value = redis.call('GET', KEYS[1])
if value and is_over(KEYS[1], now) then
  redis.call('DEL', KEYS[1])
  value = false
end
if ARGV[2] == 'get' then
  return value
end
if ARGV[2] == 'remove' then
  redis.call('DEL', KEYS[1])
  return value and 1 or 0
end
if ARGV[2] == 'put_new' and value then
  return 0
end
local life = tonumber(ARGV[4])
if life < 1 then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[3], 'PXAT', text(now + life))
end
return 1
