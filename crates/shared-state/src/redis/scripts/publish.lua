-- Counts a change and tells everybody, in one step: a word without its number, or a number without its word, cannot be.
--
-- KEYS[1] the generation      ARGV[1] the channel      ARGV[2] what is said
--
-- The first number comes from the clock, so that a server which has forgotten everything does not count the same numbers
-- again: a listener would take a new change for one that it has heard.
local generation = redis.call('GET', KEYS[1])
if not generation then
  local time = redis.call('TIME')
  redis.call('SET', KEYS[1], string.format('%.0f', time[1] * 1000000 + time[2]))
end
generation = string.format('%.0f', redis.call('INCR', KEYS[1]))
redis.call('PUBLISH', ARGV[1], generation .. ' ' .. ARGV[2])
return generation
