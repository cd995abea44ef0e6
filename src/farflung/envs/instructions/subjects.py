"""What the requests are about: everyday nouns that need no article, and ways to ask about them.

Changing a list changes the tasks of every pool that uses them.
"""

SUBJECTS = (
    *("apples", "bananas", "bread", "butter", "cake", "carrots", "cheese", "chocolate", "coffee", "eggs"),
    *("honey", "lemons", "milk", "onions", "pasta", "pepper", "potatoes", "rice", "salt", "soup"),
    *("sugar", "tea", "tomatoes", "ants", "bears", "bees", "birds", "butterflies", "camels", "cats"),
    *("chickens", "cows", "dogs", "dolphins", "ducks", "elephants", "fish", "foxes", "frogs", "goats"),
    *("horses", "lions", "monkeys", "owls", "penguins", "rabbits", "sharks", "sheep", "snakes", "spiders"),
    *("tigers", "turtles", "whales", "wolves", "beaches", "bridges", "castles", "cities", "clouds", "deserts"),
    *("farms", "flowers", "forests", "gardens", "islands", "lakes", "mountains", "oceans", "rain", "rivers"),
    *("roads", "snow", "stars", "storms", "thunder", "trees", "valleys", "villages", "volcanoes", "wind"),
    *("airplanes", "balloons", "bicycles", "boats", "books", "buses", "cameras", "candles", "cars", "chairs"),
    *("clocks", "computers", "doors", "glasses", "guitars", "hammers", "hats", "houses", "keys", "kites"),
    *("ladders", "lamps", "letters", "maps", "mirrors", "movies", "music", "newspapers", "paintings", "pencils"),
    *("phones", "pianos", "robots", "rockets", "schools", "shoes", "songs", "tables", "trains", "umbrellas"),
)

REQUESTS = (
    "Tell me about {subject}.",
    "Say something about {subject}.",
    "Describe {subject}.",
    "What are your thoughts on {subject}?",
    "Why do people care about {subject}?",
    "What is special about {subject}?",
)
