# The component `command`: the executable with its man page, shell completions and documents. The page
# and the completions come from the executable itself, so they say what --help says.

set(EPILOGUE_HELP_FILES ${PROJECT_BINARY_DIR}/help_files)
set(files ${EPILOGUE_HELP_FILES})
find_program(GZIP_PROGRAM gzip REQUIRED)
mark_as_advanced(GZIP_PROGRAM)

set(EPILOGUE_MAINTAINER "epilogue contributors <epilogue@users.noreply.github.com>"
    CACHE STRING "Who the Debian package says maintains it")
mark_as_advanced(EPILOGUE_MAINTAINER)
configure_file(${PROJECT_SOURCE_DIR}/cmake/changelog.Debian.in ${files}/changelog.Debian @ONLY)

set(made ${files}/epilogue.1.gz ${files}/bash/epilogue ${files}/zsh/_epilogue
         ${files}/fish/epilogue.fish ${files}/changelog.gz ${files}/changelog.Debian.gz)
# -n: no name and no time in the file, so that one source gives one file.
add_custom_command(
  OUTPUT ${made}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${files}/bash ${files}/zsh ${files}/fish
  COMMAND epilogue help-files man > ${files}/epilogue.1
  COMMAND epilogue help-files bash > ${files}/bash/epilogue
  COMMAND epilogue help-files zsh > ${files}/zsh/_epilogue
  COMMAND epilogue help-files fish > ${files}/fish/epilogue.fish
  COMMAND ${GZIP_PROGRAM} -9nc ${files}/epilogue.1 > ${files}/epilogue.1.gz
  COMMAND ${GZIP_PROGRAM} -9nc ${PROJECT_SOURCE_DIR}/CHANGELOG.md > ${files}/changelog.gz
  COMMAND ${GZIP_PROGRAM} -9nc ${files}/changelog.Debian > ${files}/changelog.Debian.gz
  DEPENDS epilogue ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${files}/changelog.Debian
  COMMENT "Making the man page and the shell completions"
  VERBATIM)
add_custom_target(epilogue_help_files ALL DEPENDS ${made})

function(install_command_file file folder)
  install(FILES ${file} DESTINATION ${folder} COMPONENT command ${ARGN})
endfunction()

install(TARGETS epilogue RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
install_command_file(${files}/epilogue.1.gz ${CMAKE_INSTALL_MANDIR}/man1)
install_command_file(${files}/bash/epilogue ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install_command_file(${files}/fish/epilogue.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install_command_file(${files}/changelog.gz ${CMAKE_INSTALL_DOCDIR})
install_command_file(${files}/changelog.Debian.gz ${CMAKE_INSTALL_DOCDIR})
install_command_file(${PROJECT_SOURCE_DIR}/cmake/copyright ${CMAKE_INSTALL_DOCDIR})
# Debian's zsh reads vendor-completions, others site-functions.
set(zsh_folder site-functions)
if(EXISTS /etc/debian_version)
  set(zsh_folder vendor-completions)
endif()
install_command_file(${files}/zsh/_epilogue ${CMAKE_INSTALL_DATADIR}/zsh/${zsh_folder})
