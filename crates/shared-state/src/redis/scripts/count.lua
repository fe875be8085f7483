-- A counter with a ceiling.
--
-- KEYS 1 the counter      ARGV 1 clock  2 `reserve` or `settle`  3 amount (of settling: the difference)  4 ceiling  5 life in ms
-- Answers `within` or `over`, and the sum.
local now = math.floor(now_us() / 1000)
local total = 0
if not is_over(KEYS[1], now) then
  total = tonumber(redis.call('GET', KEYS[1]) or 0)
end
local word = 'within'
local next_total = total + tonumber(ARGV[3])
if ARGV[2] == 'settle' then
  next_total = math.max(0, next_total)
elseif next_total > tonumber(ARGV[4]) then
  word, next_total = 'over', total
end
local life = tonumber(ARGV[5])
if life < 1 then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], text(next_total), 'PXAT', text(now + life))
end
return { word, text(next_total) }
