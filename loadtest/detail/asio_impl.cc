// Asio's own functions, compiled once: every other file that includes Asio
// then only declares them (BOOST_ASIO_SEPARATE_COMPILATION).
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
